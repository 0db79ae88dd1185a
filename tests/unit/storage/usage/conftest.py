"""The fixture of :mod:`usagekit`."""

from usagekit import host

__all__ = ["host"]
