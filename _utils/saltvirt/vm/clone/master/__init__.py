"""The master's side of a clone: its identity."""
