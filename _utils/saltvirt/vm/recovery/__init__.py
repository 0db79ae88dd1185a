"""Settle what an interrupted command left of a VM."""
