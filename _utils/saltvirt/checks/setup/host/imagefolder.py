"""Check whether QEMU's user can enter the image folder."""

import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from saltvirt.checks.audit.host.conffiles import Conf
from saltvirt.checks.setup.setupanswer import FolderFacts

_QEMU_USERS = ("libvirt-qemu", "qemu")
_LISTS = "system.posix_acl_access"


def read_image_folder(path: str, conf: Conf) -> FolderFacts:
    """
    Return the facts of the image folder.

    conf
        The settings of ``qemu.conf``.
    """
    user = _qemu_user(str(conf.get("user") or ""))
    return FolderFacts(
        path=path,
        why_not=_explain_unwritable(Path(path)),
        user=user.pw_name if user else None,
        closed=next(_closed_folders(Path(path), user), None) if user else None,
    )


def _qemu_user(configured_name: str) -> pwd.struct_passwd | None:
    """Return the account that QEMU runs as: by qemu.conf, a name or a number, else by package."""
    accounts = pwd.getpwall()
    for name in (configured_name,) if configured_name else _QEMU_USERS:
        number = name.removeprefix("+")
        for account in accounts:
            if name == account.pw_name or number == str(account.pw_uid):
                return account
    return None


def _explain_unwritable(path: Path) -> str | None:
    # Commands for VMs make a missing folder.
    nearest_folder = next(folder for folder in (path, *path.parents) if folder.exists())
    if not nearest_folder.is_dir():
        return f"{nearest_folder} is not a folder"
    return None if os.access(nearest_folder, os.W_OK) else f"{nearest_folder} cannot be written"


def _closed_folders(path: Path, user: pwd.struct_passwd) -> Iterator[str]:
    groups = os.getgrouplist(user.pw_name, user.pw_gid)
    for folder in (*reversed(path.resolve().parents), path.resolve()):
        if folder.is_dir() and not _can_enter(folder, user.pw_uid, groups):
            yield str(folder)


def _can_enter(folder: Path, uid: int, groups: list[int]) -> bool:
    # ACLs are not read, as they usually admit more users.
    if uid == 0 or _LISTS in os.listxattr(folder):
        return True
    status = folder.stat()
    if status.st_uid == uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid in groups:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)
