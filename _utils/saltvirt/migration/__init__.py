"""A VM changes its host."""
