"""Placement of VMs: pure functions over the answers of ``virt.host_info``."""
