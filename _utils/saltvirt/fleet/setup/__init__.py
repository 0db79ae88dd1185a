"""``virt.setup_check``: read facts, then judge them by pure functions."""
