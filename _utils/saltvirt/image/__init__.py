"""Disk images: fetch, validate, cache by digest, clone."""
