"""``virt.status``: how the cloud is, in about ten lines."""
