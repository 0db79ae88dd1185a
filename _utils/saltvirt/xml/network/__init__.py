"""libvirt's networks."""
