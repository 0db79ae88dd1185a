"""Storage pools and volumes of libvirt."""
