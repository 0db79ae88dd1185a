"""Where a VM's disks lie on this host, and what they take."""

import os
from dataclasses import dataclass
from pathlib import Path

from saltvirt.errors import ImageError, StorageError
from saltvirt.image import cache, gate, qcow2, tool
from saltvirt.kvm import connect, host, lifecycle
from saltvirt.units import MIB

_POOL_TYPES = ("dir", "fs", "netfs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder for disks, and the libvirt pool it belongs to, if any."""

    folder: Path
    pool: str | None = None


def place(conn, settings, disk):
    """Return where a disk goes: the image folder, another folder, or a libvirt pool's."""
    pool = disk.pool or settings.storagepool
    if pool is None:
        return Place(folder=made(settings.images))
    if pool.startswith("/"):
        if not Path(pool).is_dir():
            raise StorageError(f"disk {disk.name!r}: there is no folder {pool} on this host")
        return Place(folder=Path(pool))
    known = host.pools(conn)
    if pool not in known:
        listed = ", ".join(sorted(known)) or "none"
        raise StorageError(f"disk {disk.name!r}: no pool {pool!r} on this host; it has: {listed}")
    if known[pool]["type"] not in _POOL_TYPES:
        raise StorageError(
            f"disk {disk.name!r}: pool {pool!r} is of type {known[pool]['type']}; disks can be "
            f"made in pools of type {', '.join(_POOL_TYPES)}"
        )
    if not known[pool]["active"]:
        raise StorageError(f"disk {disk.name!r}: pool {pool!r} is not active; start it first")
    return Place(folder=Path(known[pool]["path"]), pool=pool)


def backing_below(settings):
    """Return the folders whose files a disk may name as its backing file."""
    return [cache.where(settings), *settings.backing_paths]


def opened_format(settings, path):
    """
    Return the format of a guest's disk that is to be opened; raise if it may not be.

    What libvirt has defined holds: a guest can write into a raw disk whatever looks like another
    format. Of a disk that no VM has, the file itself says it.
    """
    fmt = None
    if not connect.why_missing():
        with connect.opened(settings) as conn:
            fmt = lifecycle.disk_format(conn, path)
    fmt = fmt or gate.judge(path, backing_below=backing_below(settings)).format
    tool.refuse_in_use(path, fmt)
    return fmt


def made(images):
    """Return the image folder, made if it is missing."""
    folder = Path(images)
    try:
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    except OSError as exc:
        raise StorageError(f"cannot make the image folder {images}: {exc.strerror}") from exc
    return folder


def free_mib(path):
    """Return ``(total_mib, free_mib)`` of the file system that holds ``path`` or its parent."""
    path = Path(path)
    while not path.exists():
        path = path.parent
    stat = os.statvfs(path)
    return stat.f_blocks * stat.f_frsize // MIB, stat.f_bavail * stat.f_frsize // MIB


def measure(path, fmt):
    """
    Return a disk file's sizes in bytes: ``{"virtual", "actual", "backing"}``.

    Nothing but the header is read. None if the file is not there or cannot be read.
    """
    try:
        stat = os.stat(path)
        header = qcow2.read(path) if fmt == "qcow2" else None
    except (OSError, ImageError):
        return None
    virtual = header.size_bytes if header else stat.st_size
    backing = header.backing_file if header else None
    return {"virtual": virtual, "actual": stat.st_blocks * 512, "backing": backing}


def remove(path):
    """Remove a file; do nothing if it is not there."""
    Path(path).unlink(missing_ok=True)
