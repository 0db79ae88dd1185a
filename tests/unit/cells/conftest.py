"""Fixtures of these tests, from :mod:`masterkit`."""

from masterkit import cloud, said, tls

__all__ = ["cloud", "said", "tls"]
