"""``virt.doctor``: facts are read first, judged by pure functions, and mended by what is there."""
