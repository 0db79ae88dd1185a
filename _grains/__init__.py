"""Grains of Salt Virt: how the master finds its hypervisors."""
