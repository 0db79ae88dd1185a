"""The master's side of a purge: find the VM, order the purge, delete the key last."""
