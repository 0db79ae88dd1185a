"""Which hypervisors there are, what they have, and where each VM is."""
