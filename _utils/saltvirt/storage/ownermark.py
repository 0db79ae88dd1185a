"""
Owner marks: extended attributes on the files that this project has made for VMs.

A mark names the VM, the file's inode, folder and name, and the host that made it. So copies,
renamed files and files in a snapshot of the file system do not count as ours. On a file system
without extended attributes no file counts as ours.
"""

import errno
import json
import os
from dataclasses import dataclass
from pathlib import Path

from saltvirt.core.errors import StorageError

_MARK = "user.salt-virt.made"
# A host's minion id is unique for one master only, and there may be several masters.
_MACHINE = Path("/etc/machine-id")
# The errors of file systems without extended attributes, or without room for them.
_UNSUPPORTED_ERRNOS = {
    errno.EOPNOTSUPP,
    errno.ENOSYS,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EPERM,
    errno.EROFS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The VM that a file was made for, and whether this host made the file."""

    vm: str
    uuid: str
    is_of_this_host: bool


def mark(path: str | Path, vm: str, uuid: str) -> None:
    """Put the owner mark on a file, if the file exists and its file system supports marks."""
    mark_data = {"vm": vm, "uuid": uuid, "host": _read_machine_id(), **_place(path)}
    try:
        mark_data["number"] = str(os.lstat(path).st_ino)
        # A symlink planted at this path must not get another file marked.
        os.setxattr(path, _MARK, json.dumps(mark_data).encode(), follow_symlinks=False)
    except FileNotFoundError:
        return
    except OSError as exc:
        # Without a mark the file is merely never reported as a leftover.
        if exc.errno not in _UNSUPPORTED_ERRNOS:
            raise StorageError(f"cannot mark {path}: {exc.strerror}") from exc


def unmark(path: str | Path) -> None:
    """Remove the owner mark from a file that is to outlive its VM."""
    try:
        os.removexattr(path, _MARK, follow_symlinks=False)
    except OSError as exc:
        if exc.errno not in {*_UNSUPPORTED_ERRNOS, errno.ENODATA, errno.ENOENT}:
            raise StorageError(f"cannot take the mark off {path}: {exc.strerror}") from exc


def read_owner(path: str | Path) -> Owner | None:
    """Return the owner of a file, None without a valid mark."""
    try:
        mark_data = json.loads(os.getxattr(path, _MARK, follow_symlinks=False))
        place = {**_place(path), "number": str(os.lstat(path).st_ino)}
        if any(mark_data[key] != value for key, value in place.items()):
            return None
        is_of_this_host = mark_data["host"] == _read_machine_id()
        return Owner(
            vm=str(mark_data["vm"]), uuid=str(mark_data["uuid"]), is_of_this_host=is_of_this_host
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _place(path: str | Path) -> dict[str, str]:
    # A snapshot of a file system has the same inodes and names, in another folder.
    return {"folder": os.path.realpath(Path(path).parent), "name": Path(path).name}


def _read_machine_id() -> str:
    """Return the id that tells this host from hosts of other masters."""
    try:
        return _MACHINE.read_text(encoding="ascii").strip() or os.uname().nodename
    except (OSError, ValueError):
        return os.uname().nodename
