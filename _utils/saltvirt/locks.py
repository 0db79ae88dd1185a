"""Locks between processes: a file held with flock, which ends with the process that holds it."""

import fcntl
import os
from contextlib import contextmanager
from pathlib import Path

from saltvirt.files import private


def _is_still_there(handle, path):
    try:
        there = os.stat(path)
    except FileNotFoundError:
        return False
    mine = os.fstat(handle.fileno())
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


def _take(path, wait):
    """Return the open, locked file, or None if another process holds it."""
    while True:
        handle = open(path, "a+", encoding="utf-8", opener=private)  # noqa: SIM115 (it is returned)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            handle.close()
            return None
        # The last holder may have removed the file between our open and our lock.
        if _is_still_there(handle, path):
            return handle
        handle.close()


@contextmanager
def held(path, *, wait=True, is_done=lambda: True):
    """
    Yield the open file while this process holds its lock, then remove the file.

    With ``wait=False`` yield None at once if another process holds it. The file stays if
    ``is_done()`` says False at the end.
    """
    path = Path(path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = _take(path, wait)
    if handle is None:
        yield None
        return
    try:
        yield handle
    finally:
        if is_done():
            path.unlink(missing_ok=True)
        handle.close()


def is_held(path):
    """Return whether another process holds the lock of an existing file."""
    try:
        with open(path, encoding="utf-8") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def sweep(folder):
    """Remove the lock files of a folder whose process died."""
    for path in Path(folder).glob("*.lock"):
        with held(path, wait=False):
            pass
