"""Fixtures of these tests, from :mod:`hostkit` and :mod:`masterkit`."""

from hostkit import empty_image, fresh_driver, hypervisor
from masterkit import cloud, kill_at, run, said, setup, signed, tls, world

__all__ = [
    "cloud",
    "empty_image",
    "fresh_driver",
    "hypervisor",
    "kill_at",
    "run",
    "said",
    "setup",
    "signed",
    "tls",
    "world",
]
