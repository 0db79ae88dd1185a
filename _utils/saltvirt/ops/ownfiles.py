"""
Which files are a build's own: of all hosts that share a folder, one makes a file of a name.

Hosts do not see each other's records. So a file is first made under another name, which has the
token of the build, and linked to its own, which only one host can do; then it is on record.
"""

import errno
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from saltvirt import files, records
from saltvirt.errors import StorageError

# File systems without hard links answer one of these.
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def make(held: records.Held, path: str) -> None:
    """
    Make an empty file, and have it on record; raise StorageError if there is one already.

    If it raises, :func:`made` tells whether the file was made, until :func:`forget` is called.
    """
    mark = _mark(held.now, path)
    try:
        _make(mark, path)
        # What is on record and does not survive a crash might be another host's by then.
        files.sync_folder(mark.parent)
    except FileExistsError as exc:
        raise StorageError(f"a file {path} is there already") from exc
    except OSError as exc:
        raise StorageError(f"cannot make the file {path}: {exc.strerror}") from exc
    held.note(begun=[*held.now.facts["begun"], path])
    mark.unlink()


def _make(mark: Path, path: str) -> None:
    os.close(files.private(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    try:
        os.link(mark, path)
    except OSError as exc:
        if exc.errno not in _NO_LINKS:
            raise
        # Whoever is killed right here leaves a file without content.
        os.close(files.private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))


def made(record: records.Record, paths: Iterable[str]) -> list[str]:
    """Return those of some paths that a build has made; the rest is another's by now, if any."""
    begun = record.facts.get("begun")
    if begun is None:  # on record by an older version
        return list(paths)
    return [path for path in paths if path in begun or _is_same(_mark(record, path), path)]


def forget(record: records.Record, paths: Iterable[str]) -> None:
    """Remove the names under which some files were begun."""
    for path in paths:
        _mark(record, path).unlink(missing_ok=True)


def _mark(record: records.Record, path: str) -> Path:
    # A name of its own length: the file's may be as long as a name can be.
    digest = hashlib.sha256(Path(path).name.encode()).hexdigest()[:12]
    return Path(path).with_name(f".salt-virt-{record.token[:12]}-{digest}")


def _is_same(mark: Path, path: str) -> bool:
    try:
        return mark.samefile(path)
    except FileNotFoundError:
        return False
