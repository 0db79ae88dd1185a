"""
Claims: of all hosts that share a folder, only one can make a given file.

Hosts do not see each other's records, and a path is on record before its file is made. So the file
first gets another name, its mark, which contains the token of the build or the move. Only one host
can link its mark to the path. While the mark exists, the file at the path belongs to that job only
if both are the same file. The mark is removed once the file is made and on the disk.
"""

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from saltvirt.core import files
from saltvirt.core.errors import StorageError

_PREFIX = ".salt-virt-"
# The names that :func:`mark` returns.
_MARK_PATTERN = re.compile(r"\.salt-virt-([0-9a-f]{12})-[0-9a-f]{12}")


class FileTaken(StorageError):
    """The file exists already, made by another host."""


def announce(path: str, token: str) -> None:
    """Make the mark of a file that a move is about to make, and sync the mark's folder."""
    mark_path = mark(path, token)
    try:
        mark_path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        # An existing mark is this move's own, as its name contains the move's token.
        os.close(files.private(mark_path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW))
        files.sync_folder(mark_path.parent)
    except OSError as exc:
        raise StorageError(f"cannot make {path}: {exc.strerror}") from exc


def take(path: str, token: str) -> None:
    """Make an empty file from its mark; raise :class:`FileTaken` if the file exists already."""
    mark_path = mark(path, token)
    try:
        if not link_mark(mark_path, path):
            # Without hard links, a file made by another host looks like ours.
            mark_path.unlink()
        files.sync_folder(mark_path.parent)
    except FileExistsError as exc:
        raise FileTaken(f"cannot make {path}: {exc.strerror}") from exc
    except OSError as exc:
        raise StorageError(f"cannot make {path}: {exc.strerror}") from exc


def retake(path: str, token: str) -> bool:
    """
    Make the mark of a file again, before the file is removed; :func:`complete` removes the mark.

    Returns False without hard links: the file stays the job's own until its record ends.
    """
    mark_path = mark(path, token)
    try:
        if not is_marked(path, token):
            os.link(path, mark_path)
            files.sync_folder(mark_path.parent)
    except FileNotFoundError:
        pass  # it is gone already
    except OSError as exc:
        if exc.errno not in files.NO_LINKS:
            raise StorageError(f"cannot remove {path}: {exc.strerror}") from exc
        return False
    return True


def complete(path: str, token: str) -> None:
    """Remove the mark of a file that is made, or that turned out to be another host's."""
    mark_path = mark(path, token)
    try:
        # On a read-only file system unlink fails even for a missing file.
        if os.path.lexists(mark_path):
            mark_path.unlink(missing_ok=True)
    except OSError as exc:
        raise StorageError(f"cannot remove {mark_path}: {exc.strerror}") from exc


def is_own(path: str, token: str) -> bool:
    """Return whether the file at a path that a move has recorded belongs to the move."""
    return not os.path.lexists(mark(path, token)) or is_marked(path, token)


def is_marked(path: str, token: str) -> bool:
    """Return whether a file has its mark beside it, so that the job of this token made the file."""
    try:
        return mark(path, token).samefile(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as exc:
        raise StorageError(f"cannot look at {path}: {exc.strerror}") from exc


def link_mark(mark_path: Path, path: str) -> bool:
    """Hard-link a mark to a path; without support for links make a file and return False."""
    try:
        os.link(mark_path, path)
    except OSError as exc:
        if exc.errno not in files.NO_LINKS:
            raise
        # A job killed before it records this file leaves an empty file behind.
        os.close(files.private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        return False
    return True


def find_leftover_marks(folder: Path, tokens: Iterable[str]) -> list[Path]:
    """Return the marks without a recorded job in a folder that only this host uses."""
    known_prefixes = {token[:12] for token in tokens}
    matches = (
        (path, _MARK_PATTERN.fullmatch(path.name)) for path in sorted(folder.glob(f"{_PREFIX}*"))
    )
    return [
        path
        for path, match in matches
        if match and match[1] not in known_prefixes and path.is_file()
    ]


def mark(path: str, token: str) -> Path:
    """Return the path of a file's mark, in the file's folder."""
    # Use a digest: the file's own name may have the maximum length already.
    digest = hashlib.sha256(Path(path).name.encode()).hexdigest()[:12]
    return Path(path).with_name(f"{_PREFIX}{files.to_file_name(token)[:12]}-{digest}")


def is_mark(path: str) -> bool:
    """Return whether a file has the name of a mark."""
    return Path(path).name.startswith(_PREFIX)
