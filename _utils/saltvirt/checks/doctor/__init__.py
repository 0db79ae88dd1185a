"""``virt.doctor``: facts are read first, judged by pure functions, then mended."""
