"""Bridges over ports that carry the host's own traffic, without ever losing the host."""
