"""The elements of a domain, one file each."""
