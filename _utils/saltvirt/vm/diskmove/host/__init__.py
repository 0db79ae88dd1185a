"""A host's side of a disk's move: the plan, the copy, the switch, and what a crash leaves."""
