"""Change a VM: what a call asks, what that changes in its definition and while it runs, do it."""
