"""What this host says of itself to ``virt.audit``."""
