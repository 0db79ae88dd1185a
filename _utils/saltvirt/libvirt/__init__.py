"""All calls of libvirt, which no other room imports, and the reservations of a host's room."""
