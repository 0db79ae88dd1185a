"""Answer ``virt.setup_check`` for this host."""
