"""Fetch, list, prune and build images on a host."""
