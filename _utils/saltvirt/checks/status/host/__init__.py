"""What a host does for ``virt.status``."""
