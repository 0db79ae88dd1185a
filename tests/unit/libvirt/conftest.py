"""Fixtures of these tests, from :mod:`driverkit` and :mod:`hostkit`."""

from driverkit import applied, conn, virt
from hostkit import empty_image, fresh_driver, hypervisor

__all__ = ["applied", "conn", "empty_image", "fresh_driver", "hypervisor", "virt"]
