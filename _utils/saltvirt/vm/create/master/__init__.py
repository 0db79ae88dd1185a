"""The master's side of a new VM: place it, give it a key, order it, wait for its minion."""
