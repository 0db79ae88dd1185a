"""Workflows on one host: each checks everything, then acts, and undoes its work on failure."""
