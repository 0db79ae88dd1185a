"""``virt.setup_check``: facts are read first, then judged by pure functions."""
