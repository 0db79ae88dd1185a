"""Rarer garbage collection while a command holds many live objects."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# With 700, which is Python's own, ten thousand VMs cause thousands of collections, some of them
# full. A job is a forked process, and each collection copies its memory.
_NEW = 100_000

_lock = threading.Lock()
# The former thresholds, one entry for each block that has begun and not ended.
_former_thresholds: list[tuple[int, int, int]] = []


@contextmanager
def collect_rarely() -> Iterator[None]:
    """
    Collect garbage after every 100,000 new objects instead of every 700, until the block ends.

    The threshold is the process's, and some jobs are threads of one process: the last job to end
    restores the threshold from before the first.
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
