"""
Which files this project has made for VMs: a mark on the file itself, in an extended attribute.

It says whose the file is, its number, folder and name, and which host has made it: a copy, a file
that somebody has renamed, and one of a snapshot of its file system are not ours. A file system
without such attributes has no marks, and nothing there is taken for ours.
"""

import errno
import json
import os
from dataclasses import dataclass
from pathlib import Path

from saltvirt.errors import StorageError

_MARK = "user.salt-virt.made"
# By its name alone a host is known to its master, of which there may be others.
_MACHINE = Path("/etc/machine-id")
# What a file system without attributes, and one without room for any, answers.
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
    """The VM that a file was made for; ``is_of_this_host`` is whether this host has made it."""

    vm: str
    uuid: str
    is_of_this_host: bool


def mark(path: str | Path, vm: str, uuid: str) -> None:
    """Note on a file whose it is, where that can be noted; a missing file has no mark."""
    mark_data = {"vm": vm, "uuid": uuid, "host": _read_machine_id(), **_place(path)}
    try:
        mark_data["number"] = str(os.lstat(path).st_ino)
        # A link that was planted in its place must not have another file marked.
        os.setxattr(path, _MARK, json.dumps(mark_data).encode(), follow_symlinks=False)
    except FileNotFoundError:
        return
    except OSError as exc:
        # Without a mark it is only never taken for garbage.
        if exc.errno not in _UNSUPPORTED_ERRNOS:
            raise StorageError(f"cannot mark {path}: {exc.strerror}") from exc


def unmark(path: str | Path) -> None:
    """Take the mark off a file that is to stay whatever becomes of its VM."""
    try:
        os.removexattr(path, _MARK, follow_symlinks=False)
    except OSError as exc:
        if exc.errno not in {*_UNSUPPORTED_ERRNOS, errno.ENODATA, errno.ENOENT}:
            raise StorageError(f"cannot take the mark off {path}: {exc.strerror}") from exc


def read_owner(path: str | Path) -> Owner | None:
    """Return whose a file is, None if it is not ours."""
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
    # A snapshot of a file system has the same numbers and names, in another folder.
    return {"folder": os.path.realpath(Path(path).parent), "name": Path(path).name}


def _read_machine_id() -> str:
    """Return what tells this host from those that another master may have."""
    try:
        return _MACHINE.read_text(encoding="ascii").strip() or os.uname().nodename
    except (OSError, ValueError):
        return os.uname().nodename
