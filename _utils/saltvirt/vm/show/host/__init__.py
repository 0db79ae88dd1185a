"""Facts of a host and its VMs, read with libvirt's bulk calls."""
