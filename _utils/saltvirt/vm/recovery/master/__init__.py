"""The master's side of recovery: orders that have no runner any more."""
