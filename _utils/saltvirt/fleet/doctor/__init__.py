"""``virt.doctor``: read facts, judge them by pure functions, mend by existing commands."""
