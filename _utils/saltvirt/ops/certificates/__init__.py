"""The TLS certificates of a hypervisor: request, write, and have libvirt read them."""
