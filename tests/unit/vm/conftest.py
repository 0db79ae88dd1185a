"""Fixtures of these tests, from several kits."""

from driverkit import conn, virt
from hostkit import empty_image, fresh_driver, hypervisor, keeping
from masterkit import cloud, kill_at, said
from stoppedkit import stopped

__all__ = [
    "cloud",
    "conn",
    "empty_image",
    "fresh_driver",
    "hypervisor",
    "keeping",
    "kill_at",
    "said",
    "stopped",
    "virt",
]
