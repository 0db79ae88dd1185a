"""Start and stop VMs."""
