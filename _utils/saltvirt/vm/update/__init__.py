"""Change a VM."""
