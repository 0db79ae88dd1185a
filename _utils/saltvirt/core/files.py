"""Write files in one step, so that a crash leaves old or new content; open and sync them safely."""

import contextlib
import errno
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from saltvirt.core.errors import StorageError

# File systems without hard links answer one of these.
NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
# The boot is optional; the process alone means nothing in a folder that hosts share.
_PART = re.compile(r"\.(?:(?P<boot>[0-9a-f]{12})-)?(?P<pid>\d+)-(?P<name>.+)\.part")
# A part of a process that this host cannot check is dead after so long without a write.
_LIFE_S = 24 * 3600
# A file system takes names of 255 bytes, and part_path adds to them.
_MOST_QUOTED = 220
# As many as the kernel follows.
_MOST_LINKS = 40
_REMEDIES = {
    errno.ENOSPC: "make room on its file system, then try again",
    errno.EDQUOT: "make room in its quota, then try again",
    errno.EROFS: "see why it may only be read (dmesg), and mount it again for writing",
}


def write_error(failure: str, exc: OSError) -> StorageError:
    """
    Return the error for a file that could not be written, with its cause and a remedy.

    failure
        The action that failed, and the file: ``cannot make the lock /path``.
    """
    remedy = _REMEDIES.get(exc.errno or 0)
    return StorageError(f"{failure}: {exc.strerror or exc}{f'; {remedy}' if remedy else ''}")


def private(path: str | Path, flags: int) -> int:
    """Open a file that its owner alone may read; an ``opener`` for :func:`open`."""
    handle = os.open(path, flags, 0o600)
    # Salt changes the umask for moments, for all threads: a lock file that was made then would be
    # closed to the next process that waits for it.
    if stat.S_IMODE(os.fstat(handle).st_mode) & 0o600 != 0o600:
        os.fchmod(handle, 0o600)
    return handle


def open_no_link(path: str | Path, flags: int) -> int:
    """
    Open a regular file that is no link; an ``opener`` for :func:`open`.

    For a file of this process in a folder where others may write, such as QEMU's user in libvirt's
    folder for firmware variables: another file may have replaced it.
    """
    return _regular(private(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK), path)


def open_by_trusted_links(path: str | Path, flags: int) -> int:
    """
    Open a file or block device to read it, by trusted links alone; an ``opener`` for :func:`open`.

    A link is trusted if it belongs to root, or to the owner of its destination: otherwise the user
    of a QEMU that its guest broke out of could have root read any file. Raises OSError for another
    link.
    """
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISBLK(os.fstat(handle).st_mode):
        _regular(handle, path)
    try:
        _refuse_planted(str(path), os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return handle


def restrict(path: str | Path) -> None:
    """Let root alone read and write a file that is no link."""
    handle = open_no_link(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fchmod(handle, 0o600)
    finally:
        os.close(handle)


def open_trusted(path: str | Path) -> BinaryIO:
    """Open a file by :func:`open_by_trusted_links`; raise a StorageError of one line on failure."""
    try:
        return open(path, "rb", opener=open_by_trusted_links)
    except OSError as exc:
        raise StorageError(f"cannot read {path}: {exc.strerror}") from exc


def _regular(handle: int, path: str | Path) -> int:
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def _refuse_planted(path: str, opened_stat: os.stat_result) -> None:
    """Raise OSError unless trusted links alone lead from a path to the opened file."""
    for _link in range(_MOST_LINKS):
        status = os.lstat(path)
        if not stat.S_ISLNK(status.st_mode):
            break
        if status.st_uid not in (0, opened_stat.st_uid):
            raise OSError(errno.ELOOP, "it is a link that root has not made", path)
        path = str(Path(path).parent / Path(path).readlink())
    if not os.path.samestat(status, opened_stat):
        raise OSError(errno.ELOOP, "it was replaced while it was opened", path)


def write(path: str | Path, data: bytes, mode: int = 0o600, gid: int | None = None) -> None:
    """Replace a file in one step, durably; ``gid`` becomes its group."""
    replace([(path, data, mode, gid)])


def replace(files: Iterable[tuple[str | Path, bytes, int, int | None]]) -> None:
    """
    Replace files that belong together: all are on the disk before the first takes its place.

    files
        ``[(path, data, mode, gid or None)]``.
    """
    parts = [
        (part_path(Path(path).parent, Path(path).name), Path(path), data, mode, gid)
        for path, data, mode, gid in files
    ]
    try:
        for part, _path, data, mode, gid in parts:
            _write_part(part, data, mode, gid)
        for part, path, *_details in parts:
            part.rename(path)
    except BaseException:
        for part, *_details in parts:
            with contextlib.suppress(OSError):
                part.unlink()
        raise
    for folder in {path.parent for _part, path, *_details in parts}:
        sync_folder(folder)


def sync_files(paths: Iterable[str | Path]) -> None:
    """Sync files that others wrote, and their folders, to the disk."""
    written_paths = [Path(path) for path in paths]
    for path in written_paths:
        _sync(path)
    for folder in {path.parent for path in written_paths}:
        sync_folder(folder)


def make_durable(path: str | Path) -> None:
    """Sync a file that others wrote, and its folder, to the disk."""
    _sync(path)
    sync_folder(Path(path).parent)


def unlink(path: str | Path) -> None:
    """Remove a file, durably; a missing one is fine."""
    Path(path).unlink(missing_ok=True)
    # Also for a missing file: the process that removed it may have died before its own sync.
    with contextlib.suppress(FileNotFoundError):
        sync_folder(Path(path).parent)


def sync_folder(folder: str | Path) -> None:
    """Sync new, renamed and removed entries of a folder to the disk."""
    try:
        _sync(folder)
    except PermissionError:
        # The folder may be writable and not readable (1733): the file is there, so this is no
        # error.
        os.sync()
    except OSError as exc:
        # Some network file systems cannot sync a folder.
        if exc.errno != errno.EINVAL:
            raise
        os.sync()


def _sync(path: str | Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def to_file_name(text: str) -> str:
    """Return a text as a file name; shorten a long one, which then ends with its digest."""
    file_name = quote(text, safe="")
    if len(file_name) <= _MOST_QUOTED:
        return file_name
    return f"{file_name[: _MOST_QUOTED - 65]}-{hashlib.sha256(text.encode()).hexdigest()}"


def part_path(folder: str | Path, name: str) -> Path:
    """Return the path of a file that this process writes before a rename; see :func:`sweep`."""
    return Path(folder) / f".{read_boot_id()}-{os.getpid()}-{name}.part"


def read_boot_id() -> str:
    """Return an id of this boot of this host, or of a container on it."""
    kernel = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    namespace = Path("/proc/self/ns/pid").readlink()
    return hashlib.sha256(f"{kernel}{namespace}".encode()).hexdigest()[:12]


def whole_path(path: Path) -> Path:
    """Return the path that a part is to replace; any other path as it is."""
    match = _PART.fullmatch(path.name)
    return path.with_name(match["name"]) if match else path


def _write_part(part: Path, data: bytes, mode: int, gid: int | None) -> None:
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(handle, "wb") as out:
        # A mode that the umask narrowed, such as one for QEMU's group, would lock the reader out.
        os.fchmod(handle, mode)
        if gid is not None:
            os.fchown(handle, -1, gid)
        out.write(data)
        out.flush()
        os.fsync(handle)


def sweep(folder: str | Path) -> None:
    """
    Remove the parts in a folder that belong to dead processes.

    Hosts may share the folder: a part of another host, or of an earlier boot, is removed after a
    day without a write.
    """
    for part in find_abandoned(folder):
        part.unlink(missing_ok=True)


def find_abandoned(folder: str | Path) -> list[Path]:
    """Return the parts that :func:`sweep` would remove."""
    out = []
    for part in sorted(Path(folder).glob(".*.part")):
        with contextlib.suppress(FileNotFoundError):
            out += [part] if _is_dead(part) else []
    return out


def _is_dead(part: Path) -> bool:
    match = _PART.fullmatch(part.name)
    if not match:
        return False  # not one of ours
    if match["boot"] == read_boot_id():
        return not Path(f"/proc/{match['pid']}").exists()
    # Not the time of the last write: a part may be a link to an older file.
    return time.time() - part.stat().st_ctime > _LIFE_S
