"""A host's side of a purge: its files, its definition, its record."""
