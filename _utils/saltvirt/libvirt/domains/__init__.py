"""Domains of libvirt."""
