"""Execution modules of Salt Virt: the functions of hypervisors."""
