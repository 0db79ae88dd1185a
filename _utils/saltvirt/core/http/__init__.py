"""Fetch from web servers, within a time."""
