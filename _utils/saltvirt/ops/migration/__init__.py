"""Migrations: what a VM is made of, the host that sends it, and the one that takes it."""
