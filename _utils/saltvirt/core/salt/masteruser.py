"""
Use the master's files as the master's user, and explain errors in doing so.

Salt's packages run the master as user ``salt``. salt-run drops to that user for good before it
calls a runner function. ``saltutil.runner`` on the master's own minion drops in a child process
with Salt 3008.3, but stays root with 3006.25. The master could not read files that root makes
there, and a file that root opens may be a link which that user planted. So root takes on the user's
rights to files: new files belong to the master, and links lead no further than the master may go.

Only access to files is covered. Root still loads the runners, also from ``cachedir``/extmods, which
that user can write: if the master's user is not trusted like root, use salt-run.
"""

import contextlib
import ctypes
import os
import platform
import pwd
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import salt.utils.user

from saltvirt.core import files
from saltvirt.core.errors import MasterError

_READ, _WRITE, _ENTER = 4, 2, 1
# The number of setgroups(2) for 64-bit processes, from Linux' tables (include/uapi/asm-generic/
# unistd.h; arch/x86/entry/syscalls/syscall_64.tbl).
_SETGROUPS = {"x86_64": 116, "aarch64": 159, "riscv64": 159}


def _user(opts: Mapping[str, Any]) -> pwd.struct_passwd:
    """Return the passwd entry of the user that this process uses the master's files as."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    name = opts.get("user") or "root"
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise MasterError(
            f"the master's configuration says user: {name}, but this machine has "
            "no such user; is it the master's?"
        ) from None


@contextlib.contextmanager
def as_master_user(opts: Mapping[str, Any]) -> Iterator[None]:
    """
    Use files as the master's user inside the block; no effect unless this process is root.

    The kernel's file system ids belong to the thread (unlike ``seteuid``), and threads that it
    starts inherit them; a minion may run its jobs as threads. The groups are set per thread, too.
    """
    user = _user(opts)
    if os.geteuid() != 0 or user.pw_uid == 0:
        yield
        return
    groups = os.getgroups()
    try:
        _set_groups(salt.utils.user.get_gid_list(user.pw_name))
        before = _set_ids(user.pw_uid, user.pw_gid)
        try:
            yield
        finally:
            _set_ids(*before)
    finally:
        _set_groups(groups)


def _set_groups(groups: Sequence[int]) -> None:
    """
    Set the groups of this thread by a system call; ``os.setgroups`` sets those of all threads.

    Jobs in two threads of one minion would otherwise undo each other's groups. On an unlisted
    architecture all threads get the groups: root's other threads lose no rights by it.
    """
    number = _SETGROUPS.get(platform.machine()) if sys.maxsize > 2**32 else None
    if number is None:
        os.setgroups(groups)
        return
    group_array = (ctypes.c_uint32 * len(groups))(*groups)
    call = ctypes.c_long(number), ctypes.c_size_t(len(groups)), group_array
    if _libc().syscall(*call) or set(os.getgroups()) != set(groups):
        raise MasterError(
            "this process may not take the groups of the master's user; use " "salt-run itself"
        )


def _libc() -> Any:
    try:
        libc = ctypes.CDLL(None)
        for call in (libc.setfsgid, libc.setfsuid):
            call.argtypes, call.restype = [ctypes.c_uint32], ctypes.c_uint32
        libc.syscall.restype = ctypes.c_long
    except (OSError, AttributeError):
        raise MasterError(
            "this system cannot lend root the rights of the master's user; use " "salt-run itself"
        ) from None
    return libc


def _set_ids(uid: int, gid: int) -> tuple[int, int]:
    """Set this thread's file system ids, for which Python has no call; return the old ones."""
    libc = _libc()
    # The calls return the old id and report no failure: call again to check.
    before = libc.setfsgid(gid), libc.setfsuid(uid)
    if (libc.setfsgid(gid), libc.setfsuid(uid)) != (gid, uid):
        libc.setfsgid(before[0]), libc.setfsuid(before[1])
        raise MasterError(f"this process may not use files as uid {uid}; use salt-run itself")
    return before[1], before[0]


def explain_error(error: OSError, opts: Mapping[str, Any]) -> str:
    """
    Return in one line why a file could not be used, and the remedy if rights are missing.

    Any OSError but a PermissionError is returned in its own words.
    """
    user = _user(opts)
    is_ours = isinstance(error, PermissionError) and isinstance(error.filename, str | Path)
    if not is_ours or user.pw_uid == 0:
        return str(error)
    try:
        with as_master_user(opts):
            return _describe(Path(error.filename).absolute(), user, opts)
    except OSError:  # the file vanished meanwhile
        return str(error)


def _describe(path: Path, user: pwd.struct_passwd, opts: Mapping[str, Any]) -> str:
    culprit, verb = _find_culprit(path, user)
    status = culprit.lstat()
    user_text = f"user {user.pw_name}, as which the master runs, cannot {verb}"
    if stat.S_ISLNK(status.st_mode):
        return f"{culprit} is a link, and {user_text} what it leads to; put the file itself there"
    where = f" on the way to {files.whole_path(path)}" if verb == "enter" else ""
    owner = f"belongs to {_name(status.st_uid)} ({stat.S_IMODE(status.st_mode):04o})"
    return f"{culprit} {owner}, and {user_text} it{where}; {_remedy(culprit, status, user, opts)}"


def _find_culprit(path: Path, user: pwd.struct_passwd) -> tuple[Path, str]:
    """Return the path that stops the user (the file or a folder above it) and the failed verb."""
    for folder in reversed(path.parents):
        if not _is_permitted(folder.stat(), user, _ENTER):
            return folder, "enter"
    try:
        status = path.stat()
    except OSError:
        return (path, "read") if path.is_symlink() else (path.parent, "write in")
    if stat.S_ISDIR(status.st_mode):
        return path, "read"
    for right, verb in ((_READ, "read"), (_WRITE, "write")):
        if not _is_permitted(status, user, right):
            return path, verb
    return path.parent, "write in"


def _is_permitted(status: os.stat_result, user: pwd.struct_passwd, right: int) -> bool:
    groups = {user.pw_gid, *salt.utils.user.get_gid_list(user.pw_name)}
    shift = 6 if status.st_uid == user.pw_uid else 3 if status.st_gid in groups else 0
    return bool(status.st_mode >> shift & right)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _remedy(
    path: Path, status: os.stat_result, user: pwd.struct_passwd, opts: Mapping[str, Any]
) -> str:
    master_folders = [
        Path(opts[key]).absolute() for key in ("pki_dir", "cachedir") if opts.get(key)
    ]
    folder = next(
        (
            candidate
            for candidate in master_folders
            if path == candidate or candidate in path.parents
        ),
        None,
    )
    if folder is None:
        return (
            f"choose a place that {user.pw_name} can use; this makes one: install -d -m 700 "
            f"-o {user.pw_name} /srv/salt-virt"
        )
    # That user may have planted a link so that root gives away its target.
    link = _find_planted_link(path, folder)
    if link:
        return f"{link} on the way there is a link: put the folder itself in its place"
    flag = "R" if stat.S_ISDIR(status.st_mode) else ""
    if status.st_uid == user.pw_uid:
        return f"run: chmod {f'-{flag} ' if flag else ''}u+rwX {shlex.quote(str(path))}"
    # chown the whole folder, which that user cannot replace; -h: links inside it may be planted.
    real_folder = folder.resolve() if folder.is_symlink() else folder
    return f"run: chown -hR {user.pw_name}: {shlex.quote(str(real_folder))}"


def _find_planted_link(path: Path, folder: Path) -> Path | None:
    """Return a link on the way to a path below the master's folder, except root's own link."""
    if folder.is_symlink() and folder.lstat().st_uid != 0:
        return folder
    parents_below = [parent for parent in reversed(path.parents) if folder in parent.parents]
    return next((parent for parent in parents_below if parent.is_symlink()), None)
