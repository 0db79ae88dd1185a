"""Runners of Salt Virt: what the master can do with all hypervisors."""
