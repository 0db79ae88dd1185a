"""Runners of Salt Virt: the functions of the master over all hypervisors."""
