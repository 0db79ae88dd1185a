"""Answer ``virt.doctor`` for this host, and mend on request."""
