"""Fixtures of these tests, from :mod:`masterkit`."""

from masterkit import cloud, kill_at, master, said, signed, two

__all__ = ["cloud", "kill_at", "master", "said", "signed", "two"]
