"""The TLS certificates of a hypervisor: asked from the master, laid down, read by libvirt."""
