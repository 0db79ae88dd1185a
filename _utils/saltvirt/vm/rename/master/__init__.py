"""The master's side of a rename: the record under both names, and the key."""
