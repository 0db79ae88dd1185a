"""``virt.audit``: facts are read first, then judged by pure functions."""
