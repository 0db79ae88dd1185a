"""A host's side of an update: the call, the definition, the running VM, the steps."""
