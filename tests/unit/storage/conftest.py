"""Fixtures of these tests, from :mod:`hostkit` and :mod:`masterkit`."""

from hostkit import empty_image, fresh_driver, hypervisor, keeping, settings
from masterkit import cloud

__all__ = ["cloud", "empty_image", "fresh_driver", "hypervisor", "keeping", "settings"]
