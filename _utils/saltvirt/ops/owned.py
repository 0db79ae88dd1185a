"""
Which files this project has made for VMs: a mark on the file itself, in an extended attribute.

It says whose the file is, its number and its name: a copy, or a file that somebody has renamed, is
not ours. A file system without such attributes has no marks, and nothing there is taken for ours.
"""

import errno
import json
import os
from dataclasses import dataclass
from pathlib import Path

from saltvirt.errors import StorageError

_MARK = "user.salt-virt.made"
# What a file system without attributes, and one without room for any, answers.
_NONE = {errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOSPC, errno.EDQUOT, errno.EPERM, errno.EROFS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The VM that a file was made for."""

    vm: str
    uuid: str


def mark(path: str | Path, vm: str, uuid: str) -> None:
    """Note on a file whose it is, where that can be noted; a missing file has no mark."""
    said = {"vm": vm, "uuid": uuid, "name": Path(path).name}
    try:
        said["number"] = str(os.stat(path).st_ino)
        os.setxattr(path, _MARK, json.dumps(said).encode())
    except FileNotFoundError:
        return
    except OSError as exc:
        # Without a mark it is only never taken for garbage.
        if exc.errno not in _NONE:
            raise StorageError(f"cannot mark {path}: {exc.strerror}") from exc


def unmark(path: str | Path) -> None:
    """Take the mark off a file that is to stay whatever becomes of its VM."""
    try:
        os.removexattr(path, _MARK)
    except OSError as exc:
        if exc.errno not in {*_NONE, errno.ENODATA, errno.ENOENT}:
            raise StorageError(f"cannot take the mark off {path}: {exc.strerror}") from exc


def of(path: str | Path) -> Owner | None:
    """Return whose a file is, None if it is not ours."""
    try:
        said = json.loads(os.getxattr(path, _MARK))
        is_it = said["name"] == Path(path).name and said["number"] == str(os.stat(path).st_ino)
        return Owner(vm=str(said["vm"]), uuid=str(said["uuid"])) if is_it else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
