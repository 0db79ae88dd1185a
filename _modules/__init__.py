"""Execution modules of Salt Virt: what a minion on a hypervisor can do."""
