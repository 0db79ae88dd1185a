"""Where a VM goes: pure functions over what ``virt.host_info`` says."""
