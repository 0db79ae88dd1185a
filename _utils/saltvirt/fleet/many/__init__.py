"""Deploy many VMs at once: the request, one plan, and builds with a limit for each host."""
