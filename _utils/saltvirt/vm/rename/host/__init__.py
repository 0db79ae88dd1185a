"""A host's side of a rename: the guest's id, the domain, and what is named after it."""
