"""A host's side of a clone: its source, its plan, its steps."""
