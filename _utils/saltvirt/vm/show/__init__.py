"""What is shown of a host and its VMs."""
