"""Remove a VM with everything that was made for it."""
