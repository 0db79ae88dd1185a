"""Drivers of salt-cloud."""
