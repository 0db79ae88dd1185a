"""A host's side of power: the lock under which VMs start, and states over many VMs."""
