"""A disk of a VM goes into another file on the same host, whether the VM runs or not."""
