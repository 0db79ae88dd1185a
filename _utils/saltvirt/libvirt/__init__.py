"""The edge to libvirt: nothing else in the project imports it; and what the host has promised."""
