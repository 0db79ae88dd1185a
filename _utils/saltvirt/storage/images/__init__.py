"""Disk images on a host: fetch, validate, cache by digest, clone."""
