"""
Locks between processes: a lock file is held as long as its process lives.

They are the kernel's locks of open files, which survive fork and threads. A process can query them
without taking them, so that it delays no other.
"""

import fcntl
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TextIO

from saltvirt.core.files import private, write_error

# linux/fcntl.h; Python has the names only where its C library had them.
GETLK, SETLK, _SETLKW = 36, 37, 38
# struct flock: type, whence, start, length, process.
_FLOCK = struct.Struct("@hhqqi4x")


def request_lock(handle: IO[Any], command: int, kind: int, start: int = 0, length: int = 0) -> int:
    """
    Take or query a lock of an open file; return the kind that the kernel answers.

    command
        ``GETLK`` to query the locks of others, ``SETLK`` to take the lock or fail.
    kind
        fcntl's ``F_RDLCK`` or ``F_WRLCK``.
    start, length
        The range of bytes. Defaults to all.
    """
    answer = fcntl.fcntl(handle, command, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0))
    return int(_FLOCK.unpack(answer)[0])


def _is_still_there(handle: TextIO, path: Path) -> bool:
    try:
        path_stat = os.stat(path)
    except FileNotFoundError:
        return False
    handle_stat = os.fstat(handle.fileno())
    return (handle_stat.st_dev, handle_stat.st_ino) == (path_stat.st_dev, path_stat.st_ino)


def _take(path: Path, wait: bool) -> TextIO | None:
    """
    Return the open, locked file, or None if another process holds it.

    Raises StorageError on a full or read-only file system.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _lock_file(path, wait)
    except PermissionError:
        raise  # the runners report who may do this, and the command to run
    except OSError as exc:
        raise write_error(f"cannot make the lock {path}", exc) from exc


def _lock_file(path: Path, wait: bool) -> TextIO | None:
    while True:
        handle = open(path, "a+", encoding="utf-8", opener=private)  # noqa: SIM115 (it is returned)
        try:
            request_lock(handle, _SETLKW if wait else SETLK, fcntl.F_WRLCK)
        except (BlockingIOError, PermissionError):
            handle.close()
            return None
        # The last holder may have removed the file between our open and our lock.
        if _is_still_there(handle, path):
            return handle
        handle.close()


def lock_for_program(path: str | Path) -> int | None:
    """
    Return the handle of a lock to pass to a program, which then holds it until it ends.

    None if another process holds it. Close the handle once the program has it. The file stays.
    """
    handle = _take(Path(path), wait=False)
    if handle is None:
        return None
    with handle:
        return os.dup(handle.fileno())


@contextmanager
def hold_lock(
    path: str | Path, *, wait: bool = True, is_done: Callable[[], bool] = lambda: True
) -> Iterator[TextIO | None]:
    """
    Yield the open file while this process holds its lock, then remove the file.

    With ``wait=False`` yield None at once if another process holds it. The file stays if
    ``is_done()`` is False at the end.
    """
    path = Path(path)
    handle = _take(path, wait)
    if handle is None:
        yield None
        return
    try:
        yield handle
    finally:
        if is_done():
            # A file that stays blocks no process, and its error must not hide an error of the
            # block.
            with suppress(OSError):
                path.unlink(missing_ok=True)
        handle.close()


def is_held(path: str | Path) -> bool:
    """Return whether a process holds the lock of an existing file; this takes no lock itself."""
    try:
        with open(path, encoding="utf-8") as handle:
            return request_lock(handle, GETLK, fcntl.F_WRLCK) != fcntl.F_UNLCK
    except FileNotFoundError:
        return False


def find_dead(folder: str | Path) -> list[Path]:
    """Return the lock files of a folder that no process holds, such as :func:`sweep` removes."""
    return [path for path in sorted(Path(folder).glob("*.lock")) if not is_held(path)]


def sweep(folder: str | Path) -> None:
    """Remove the lock files of a folder that dead processes left."""
    for path in Path(folder).glob("*.lock"):
        with hold_lock(path, wait=False):
            pass
