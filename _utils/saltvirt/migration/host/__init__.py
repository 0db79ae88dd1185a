"""A host's side of moves: the VM departs from the source and arrives on the target."""
