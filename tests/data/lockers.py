"""Another user of the machine, who holds whatever can be held by who may only read it."""

import os
import signal
import threading
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path


def _hold(folder):
    """Lock all that others may read in a folder, and itself, as anybody can who may read it."""
    for path in (folder, *folder.rglob("*")):
        if path.stat().st_mode & 0o004:
            flock(os.open(path, os.O_RDONLY), LOCK_EX | LOCK_NB)


@contextmanager
def another_user_holds(*folders):
    """Have that user's locks held as long as the block lasts."""
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        for folder in map(Path, folders):
            _hold(folder)
        os.write(told, b"1")
        signal.pause()
    os.close(told)
    try:
        assert os.read(ready, 1) == b"1"
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)


def ends(work):
    """Return whether something ends, which waits for nobody who is not root."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(5)
    return not thread.is_alive()
