"""The TLS certificates of a hypervisor: requested, installed, reloaded by libvirt."""
