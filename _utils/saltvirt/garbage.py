"""How often Python looks for garbage while a command holds much that is none."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# Of 700, which is Python's own, ten thousand VMs make thousands of looks, some of them at all that
# there is; a job is a process of its own, of which each such look copies the memory.
_NEW = 100_000


@contextmanager
def rarely() -> Iterator[None]:
    """Have it look after every 100,000 new objects instead of every 700, until the block ends."""
    before = gc.get_threshold()
    gc.set_threshold(_NEW, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
