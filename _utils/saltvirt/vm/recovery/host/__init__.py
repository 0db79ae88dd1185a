"""A host's side of recovery: records that have no process any more."""
