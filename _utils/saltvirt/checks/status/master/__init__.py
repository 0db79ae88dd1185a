"""What the master does for ``virt.status``."""
