"""A host's side of a new VM: facts, then a plan made of them, then its steps."""
