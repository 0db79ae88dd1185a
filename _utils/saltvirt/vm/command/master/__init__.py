"""The master's side: locate the VMs, then have their hosts act."""
