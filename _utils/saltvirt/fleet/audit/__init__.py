"""``virt.audit``: read facts of the master and the hosts, then judge them by pure functions."""
