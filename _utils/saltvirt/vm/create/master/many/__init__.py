"""Many new VMs at once: one plan, and builds with a limit for each host."""
