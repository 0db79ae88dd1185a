"""
Proof that a shared disk is the same file on both hosts of a move.

The path alone is no proof: a host without the storage mounted may have an old file there. The
file's inode is one. Where hosts see different inodes, a mark is another: a file that the source
keeps beside the disk until it begins to send the VM.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from saltvirt.core import files
from saltvirt.placement.answers import DiskFacts, MigrationInfo
from saltvirt.storage import claims


def inode(path: str) -> int | None:
    """Return the inode of a regular file; None for a device or an inaccessible path."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino if stat.S_ISREG(status.st_mode) else None


def mark_shared(moving: MigrationInfo, token: str) -> list[str]:
    """Make the marks of a move; return the paths of those that could be made."""
    mark_paths = []
    for path in {
        Path(disk.path).parent: disk.path for disk in _filter_shared(moving.disks)
    }.values():
        mark_path = str(claims.mark(path, token))
        try:
            os.close(files.private(mark_path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW))
        except OSError:
            continue  # a read-only folder; the inodes may be the same on both hosts
        mark_paths.append(mark_path)
    return mark_paths


def unmark_shared(disks: Iterable[list[str]], token: str) -> None:
    """Remove the marks of a move from the folders of its recorded disks."""
    for _target, path, how in disks:
        if how == "shared" and path.startswith("/"):
            try:
                claims.mark(path, token).unlink(missing_ok=True)
            except OSError:
                continue  # no mark could be made there either


def find_different(moving: MigrationInfo) -> Iterator[str]:
    """Yield a reason for each shared disk that is another file on this host, once a move began."""
    for disk in _filter_shared(moving.disks) if moving.marks is not None else ():
        local_inode = inode(disk.path)
        is_same = local_inode == disk.inode or _is_marked(disk.path, moving.marks or [])
        if local_inode is not None and not is_same:
            yield (
                f"the file {disk.path} there is not the one that the VM has; is the storage "
                f"mounted there?"
            )


def _filter_shared(disks: Iterable[DiskFacts]) -> Iterator[DiskFacts]:
    for disk in disks:
        if disk.how == "shared" and disk.inode is not None and disk.path.startswith("/"):
            yield disk


def _is_marked(path: str, marks: Iterable[str]) -> bool:
    folder_marks = [mark_path for mark_path in marks if Path(mark_path).parent == Path(path).parent]
    return any(
        claims.is_mark(mark_path) and os.path.lexists(mark_path) for mark_path in folder_marks
    )
