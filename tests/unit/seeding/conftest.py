"""Fixtures of these tests, from :mod:`hostkit`."""

from hostkit import empty_image, fresh_driver, hypervisor, keeping

__all__ = ["empty_image", "fresh_driver", "hypervisor", "keeping"]
