"""Many new VMs at once: what is asked for, one plan, builds with a limit for each host."""
