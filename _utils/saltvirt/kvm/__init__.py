"""The edge to libvirt: nothing else in the project imports it."""
