"""A new VM."""
