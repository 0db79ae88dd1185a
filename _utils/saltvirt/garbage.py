"""How often Python looks for garbage while a command holds much that is none."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Of 700, which is Python's own, ten thousand VMs make thousands of looks, some of them at all that
# there is; a job is a process of its own, of which each such look copies the memory.
_NEW = 100_000

_lock = threading.Lock()
# How often it was before, once for each block that has begun and not ended.
_former_thresholds: list[tuple[int, int, int]] = []


@contextmanager
def collect_rarely() -> Iterator[None]:
    """
    Have it look after every 100,000 new objects instead of every 700, until the block ends.

    That is the whole process's. Some jobs are threads of one: the last of them to end has it as it
    was before the first.
    """
    with _lock:
        _former_thresholds.append(
            _former_thresholds[0] if _former_thresholds else gc.get_threshold()
        )
        gc.set_threshold(_NEW, *_former_thresholds[0][1:])
    try:
        yield
    finally:
        with _lock:
            thresholds = _former_thresholds.pop()
            if not _former_thresholds:
                gc.set_threshold(*thresholds)
