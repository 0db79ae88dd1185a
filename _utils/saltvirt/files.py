"""Files that are replaced in one step: a crash at any byte leaves the old content or the new."""

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

from saltvirt.errors import StorageError

# File systems without hard links answer one of these.
NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
# Those before this had the process alone, which says nothing in a folder that hosts share.
_PART = re.compile(r"\.(?:(?P<boot>[0-9a-f]{12})-)?(?P<pid>\d+)-(?P<name>.+)\.part")
# What nobody here can know the process of is dead when it was not written to for so long.
_LIFE_S = 24 * 3600
# A file system takes 255 bytes, and more than a kind stands beside it: see part_path.
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
    Return the error of a file that could not be written: with its cause, and what to do.

    what
        What could not be done, and the file: ``cannot make the lock /path``.
    """
    remedy = _REMEDIES.get(exc.errno or 0)
    return StorageError(f"{failure}: {exc.strerror or exc}{f'; {remedy}' if remedy else ''}")


def private(path: str | Path, flags: int) -> int:
    """Open a file that nobody else may read; an ``opener`` for :func:`open`."""
    handle = os.open(path, flags, 0o600)
    # Salt sets the umask for moments, which is that of all threads: a lock's file that was made
    # then could not be opened by the next who waits for it.
    if stat.S_IMODE(os.fstat(handle).st_mode) & 0o600 != 0o600:
        os.fchmod(handle, 0o600)
    return handle


def open_no_link(path: str | Path, flags: int) -> int:
    """
    Open a regular file that is no link; an ``opener`` for :func:`open`.

    For a file that this process has made where others may write, as QEMU's user may where libvirt
    has it keep the variables of firmware: it may have been replaced since.
    """
    return _regular(private(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK), path)


def open_by_trusted_links(path: str | Path, flags: int) -> int:
    """
    Open a file or block device to read it, by trusted links alone; an ``opener`` for :func:`open`.

    A link is trusted if root has made it, or the owner of what it leads to: the user of a QEMU that
    was broken out of could have root read any other file. Raises OSError for another one.
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
    """Open a file as :func:`trusted` does; raise StorageError, in one line, if it is not opened."""
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
    """Raise OSError unless trusted links alone lead from a path to the file that was opened."""
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
    """Replace a file in one step, on the disk when this returns; ``gid`` becomes its group."""
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
    """Have files that others wrote, and the folders they are in, on the disk when this returns."""
    written_paths = [Path(path) for path in paths]
    for path in written_paths:
        _sync(path)
    for folder in {path.parent for path in written_paths}:
        sync_folder(folder)


def make_durable(path: str | Path) -> None:
    """Have a file that others wrote, and its folder, on the disk when this returns."""
    _sync(path)
    sync_folder(Path(path).parent)


def unlink(path: str | Path) -> None:
    """Remove a file, which is gone after a crash too when this returns; a missing one is fine."""
    Path(path).unlink(missing_ok=True)
    # Also for one that is missing: whoever removed it may not have come as far as this.
    with contextlib.suppress(FileNotFoundError):
        sync_folder(Path(path).parent)


def sync_folder(folder: str | Path) -> None:
    """Have what was made, renamed and removed in a folder on the disk when this returns."""
    try:
        _sync(folder)
    except PermissionError:
        # It may be written in and not read (1733): the file is there, so this is not an error.
        os.sync()
    except OSError as exc:
        # Some file systems of networks know no such thing for a folder.
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
    """Return a text as the name of a file; one that is too long for that ends with its digest."""
    file_name = quote(text, safe="")
    if len(file_name) <= _MOST_QUOTED:
        return file_name
    return f"{file_name[: _MOST_QUOTED - 65]}-{hashlib.sha256(text.encode()).hexdigest()}"


def part_path(folder: str | Path, name: str) -> Path:
    """Return where this process writes a file before it takes its place; see :func:`sweep`."""
    return Path(folder) / f".{read_boot_id()}-{os.getpid()}-{name}.part"


def read_boot_id() -> str:
    """Return what tells this boot of this host, and a container on it, from all others."""
    kernel = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    namespace = Path("/proc/self/ns/pid").readlink()
    return hashlib.sha256(f"{kernel}{namespace}".encode()).hexdigest()[:12]


def whole_path(path: Path) -> Path:
    """Return what a part takes the place of; any other path as it is."""
    match = _PART.fullmatch(path.name)
    return path.with_name(match["name"]) if match else path


def _write_part(part: Path, data: bytes, mode: int, gid: int | None) -> None:
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(handle, "wb") as out:
        # A mode that the umask narrowed, say for QEMU's group, would lock the reader out.
        os.fchmod(handle, mode)
        if gid is not None:
            os.fchown(handle, -1, gid)
        out.write(data)
        out.flush()
        os.fsync(handle)


def sweep(folder: str | Path) -> None:
    """
    Remove the parts of a folder whose process died; those of a live one are left alone.

    The folder may be shared by hosts: a part of another host, or of this one before it was
    started, goes when nobody has written to it for a day.
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
        return False  # somebody else's
    if match["boot"] == read_boot_id():
        return not Path(f"/proc/{match['pid']}").exists()
    # Not the time of the last write: a part may be a link to a file that is older.
    return time.time() - part.stat().st_ctime > _LIFE_S
