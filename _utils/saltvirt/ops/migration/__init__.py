"""Moves of VMs on a host: the facts that a VM moves with, its departure and its arrival."""
