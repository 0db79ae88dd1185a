"""Capabilities and devices of a host."""
