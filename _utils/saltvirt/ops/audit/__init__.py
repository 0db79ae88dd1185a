"""Answer ``virt.audit`` for this host."""
