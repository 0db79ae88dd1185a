"""The master's side of storage: usage of shared files, trash and images of all hosts."""
