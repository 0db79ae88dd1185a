"""Where a VM goes, and why not elsewhere: pure functions over the hosts' answers."""
