"""
Which files an arrival has made: of all hosts that share a folder, one makes a file of a name.

Hosts do not see each other's records, and a path is on record before its file is made. So the file
has a second name first, its mark, with the move's token in it. Only one host can link its mark to
the path. As long as the mark is there, the file at that path is the move's only if both are one
file; the mark goes when the file is made, and on the disk.
"""

import hashlib
import os
from pathlib import Path

from saltvirt import files
from saltvirt.errors import StorageError
from saltvirt.ops import ownfiles

_PREFIX = ".salt-virt-"


class FileTaken(StorageError):
    """A file is there already, made by somebody else."""


def announce(path: str, token: str) -> None:
    """Make the mark of a file that a move is about to make; it is on the disk afterwards."""
    mark_path = mark(path, token)
    try:
        mark_path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        # One that is there is this move's own: nobody else knows its token.
        os.close(files.private(mark_path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW))
        files.sync_folder(mark_path.parent)
    except OSError as exc:
        raise StorageError(f"cannot make {path}: {exc.strerror}") from exc


def take(path: str, token: str) -> None:
    """Make the file, empty; raise :class:`Anothers` if there is one already."""
    mark_path = mark(path, token)
    try:
        if not ownfiles.link_mark(mark_path, path):
            # Here a file that is made by another host after it is noted cannot be told from ours.
            mark_path.unlink()
        files.sync_folder(mark_path.parent)
    except FileExistsError as exc:
        raise FileTaken(f"cannot make {path}: {exc.strerror}") from exc
    except OSError as exc:
        raise StorageError(f"cannot make {path}: {exc.strerror}") from exc


def complete(path: str, token: str) -> None:
    """Remove the mark of a file that is made, or of one that turned out to be another's."""
    mark_path = mark(path, token)
    try:
        mark_path.unlink(missing_ok=True)
    except OSError as exc:
        raise StorageError(f"cannot remove {mark_path}: {exc.strerror}") from exc


def is_own(path: str, token: str) -> bool:
    """Return whether the file at a path that a move has noted is that move's."""
    mark_path = mark(path, token)
    if not os.path.lexists(mark_path):
        return True
    try:
        return mark_path.samefile(path)
    except (FileNotFoundError, NotADirectoryError):
        return False


def mark(path: str, token: str) -> Path:
    """Return the mark of a file, which is in its folder."""
    # A name of its own length: the file's may be as long as a name can be.
    digest = hashlib.sha256(Path(path).name.encode()).hexdigest()[:12]
    return Path(path).with_name(f"{_PREFIX}{files.to_file_name(token)[:12]}-{digest}")


def is_mark(path: str) -> bool:
    """Return whether a file is called as a mark is."""
    return Path(path).name.startswith(_PREFIX)
