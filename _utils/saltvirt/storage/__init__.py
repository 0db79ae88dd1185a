"""Disks on a host: where they lie, what uses them, and the only code that removes them."""
