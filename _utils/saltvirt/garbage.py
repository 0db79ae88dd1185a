"""How often Python looks for garbage while a command holds much that is none."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Of 700, which is Python's own, ten thousand VMs make thousands of looks, some of them at all that
# there is; a job is a process of its own, of which each such look copies the memory.
_NEW = 100_000


_lock = threading.Lock()
_inside: list[object] = []
_usual: list[int] = []


@contextmanager
def rarely() -> Iterator[None]:
    """
    Have it look after every 100,000 new objects instead of every 700, until the block ends.

    That is the whole process's. Some jobs are threads of one: the last of them to end has it as it
    was before the first.
    """
    mine = object()
    with _lock:
        if not _inside:
            _usual[:] = gc.get_threshold()
        _inside.append(mine)
        gc.set_threshold(_NEW, *_usual[1:])
    try:
        yield
    finally:
        with _lock:
            _inside.remove(mine)
            if not _inside:
                gc.set_threshold(*_usual)
