"""Access to libvirt: no other package of the project imports it."""
