"""Workflows on one host: check everything, then act, and undo on failure."""
