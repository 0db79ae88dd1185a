"""Bridges over ports with the host's own traffic, without ever losing the host."""
