"""A VM that is a copy of another one on the same host."""
