"""Places, sizes, backing chains and locks of VMs' disks on this host."""

import errno
import fcntl
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from saltvirt.core import locks, writelimit
from saltvirt.core.errors import ImageError, StorageError
from saltvirt.core.model import Disk
from saltvirt.core.options.config import HostSettings
from saltvirt.core.units import MIB
from saltvirt.libvirt import connect, hostfacts
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage.images import cache, qcow2, tool, validation
from saltvirt.xml.storage import pooldisk

# QEMU itself refuses chains that are much longer.
_DEPTH = 64
# The formats with a measured virtual size; for others the file's size stands for it.
_MEASURED_FORMATS = ("raw", "qcow2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder for disks, and the libvirt pool it belongs to, if any."""

    folder: Path
    pool: str | None = None


def find_place(settings: HostSettings, pools: Mapping[str, Any], disk: Disk) -> Place:
    """
    Return the place for a disk: the image folder, another folder, or a libvirt pool's.

    pools
        The pools from :func:`saltvirt.libvirt.hostfacts.pools`.
    """
    pool = disk.pool or settings.disk_pool
    if pool is None:
        return Place(folder=Path(settings.images))
    if pool.startswith("/"):
        if not Path(pool).is_dir():
            raise StorageError(f"disk {disk.name!r}: there is no folder {pool} on this host")
        return Place(folder=Path(pool))
    if pool not in pools:
        pool_names = ", ".join(sorted(pools)) or "none"
        raise StorageError(
            f"disk {disk.name!r}: no pool {pool!r} on this host; it has: {pool_names}"
        )
    if pools[pool]["type"] not in pooldisk.FILES:
        raise StorageError(
            f"disk {disk.name!r}: pool {pool!r} is of type {pools[pool]['type']}; disks can be in "
            f"pools of type {', '.join(pooldisk.TYPES)}"
        )
    if not pools[pool]["active"]:
        raise StorageError(f"disk {disk.name!r}: pool {pool!r} is not active; start it first")
    return Place(folder=Path(pools[pool]["path"]), pool=pool)


def folders(conn: Any, settings: HostSettings) -> list[Path]:
    """Return the folders in which VMs' files are made: image folder, default folder, pools."""
    pool_paths = [
        pool["path"] for pool in hostfacts.pools(conn).values() if pool["type"] in pooldisk.FILES
    ]
    configured_paths = [
        path for path in (settings.images, settings.disk_pool or "") if path.startswith("/")
    ]
    real_paths = {Path(os.path.realpath(path)) for path in (*configured_paths, *pool_paths) if path}
    return sorted(path for path in real_paths if path.is_dir())


def backing_below(settings: HostSettings) -> list[str | Path]:
    """Return the folders in which a disk's backing file may lie."""
    return [cache.folder_path(settings), *settings.backing_paths]


def opened_format(settings: HostSettings, path: str | Path) -> str:
    """
    Return the format in which to open a guest's disk; raise if it must not be opened.

    A definition in libvirt decides: a guest can write another format's header into its raw disk.
    The format of a disk without a VM is probed; a block device is raw.
    """
    # qemu-img does not notice that a raw disk is in use.
    if is_open(path):
        raise tool.in_use_error(path)
    fmt, is_device = None, Path(path).is_block_device()
    if not connect.why_missing():
        with connect.open_connection(settings) as conn:
            fmt = lifecycle.disk_format(conn, path)
    if is_device:
        with claim_device(path):
            fmt = fmt or "raw"
    fmt = fmt or validation.validate(path, backing_below=backing_below(settings)).format
    tool.refuse_in_use(path, fmt)
    return fmt


@contextmanager
def claim_device(path: str | Path) -> Iterator[None]:
    """
    Claim a block device, so that this host cannot begin to use it during the block.

    Raises StorageError if the host uses the device already.
    """
    try:
        # The kernel claims mounted devices the same way, and a disk with mounted partitions.
        handle = os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno != errno.EBUSY:
            raise StorageError(f"{path} cannot be opened: {exc.strerror}") from exc
        raise StorageError(
            f"{path} is in use by this host: it, or a part of it, is mounted, swapped to, or of a "
            "volume group or an array"
        ) from exc
    try:
        yield
    finally:
        os.close(handle)


def make_image_folder(images: str | Path) -> Path:
    """Make the image folder if it is missing, and return it."""
    folder = Path(images)
    try:
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    except OSError as exc:
        raise StorageError(f"cannot make the image folder {images}: {exc.strerror}") from exc
    return folder


def free_mib(path: str | Path) -> tuple[int, int]:
    """Return ``(total_mib, free_mib)`` of the file system that holds a path or its parent."""
    total, free = writelimit.read_space(path)
    return total // MIB, free // MIB


def measure(path: str | Path, fmt: str) -> dict[str, Any] | None:
    """
    Return a disk file's sizes in bytes: ``{"virtual", "actual", "backing", "is_split"}``.

    ``is_split`` tells whether the guest's data is in an external data file. Only the header is
    read. Returns None if the file is missing or unreadable.
    """
    try:
        status = os.stat(path)
        header = qcow2.read(path) if fmt == "qcow2" else None
    except (OSError, ImageError):
        return None
    virtual = header.size_bytes if header else status.st_size
    backing_file = header.backing_file if header else None
    return {
        "virtual": virtual,
        "actual": status.st_blocks * 512,
        "backing": backing_file,
        "is_split": header is not None and header.has_data_file,
    }


def is_measured(fmt: str) -> bool:
    """Return whether :func:`measure` returns the size that a guest sees for a format."""
    return fmt in _MEASURED_FORMATS


def chain(path: str, home: Path | None = None) -> Iterator[str]:
    """
    Yield a disk that is not raw, and the files that it needs; only headers are read.

    These are its backing chain, and the external data files of all of them. Names that cannot be
    files are left out.

    home
        The folder for relative names in the disk's header. Defaults to the disk's own.
    """
    yield from (file_path for file_path, _error in walk_chain(path, home))


def chain_below(path: str, home: Path | None = None) -> list[str]:
    """Return the files that :func:`chain` yields, without the disk itself."""
    return [*chain(path, home)][1:]


def walk_chain(path: str, home: Path | None = None) -> Iterator[tuple[str, str | None]]:
    """Yield the files of :func:`chain`, each with its header's error, None if it is readable."""
    pending = [(path, home, False)]
    for _ in range(_DEPTH):
        if not pending:
            return
        path, home, is_raw = pending.pop(0)
        # A raw file may have been a guest's disk, with a fake header that the guest wrote.
        needed_files, error = ([], None) if is_raw else _read_needed_files(path)
        yield path, error
        folder = home or Path(path).parent
        pending += [(str(folder / file.path), None, file.is_raw) for file in needed_files]


def _read_needed_files(path: str) -> tuple[list[qcow2.BackingFile], str | None]:
    """Return the files that a file's header names, and the error if it cannot be read."""
    try:
        # Opening anything else may block, as a pipe does.
        is_read = Path(path).is_file() or Path(path).is_block_device()
        names = qcow2.read_references(path) if is_read else []
    except OSError as exc:
        return [], exc.strerror or str(exc)
    # The name may be no valid path.
    except (ValueError, ImageError) as exc:
        return [], str(exc)
    return [file for name, fmt in names for file in qcow2.files_from_name(name, fmt)], None


def find_known_path(path: str, known_paths: Collection[str]) -> str | None:
    """Return the known path that leads to the same directory entry as a path, else None."""
    real_path = os.path.realpath(path)
    for candidate in (path, real_path):
        if candidate in known_paths:
            return candidate
    name, entry = Path(real_path).name, _folder_entry(real_path)
    candidates = (
        candidate
        for candidate in known_paths
        if candidate.startswith("/") and Path(candidate).name == name
    )
    return next(
        (
            candidate
            for candidate in candidates
            if entry is not None and _folder_entry(candidate) == entry
        ),
        None,
    )


def _folder_entry(path: str) -> tuple[int, int, str] | None:
    """Return a file's folder by its inode, which is the same at every mount, and its name."""
    # The file's own inode does not serve: a hard link's content stays when this path is removed.
    folder = _stat(Path(path).parent)
    return (folder.st_dev, folder.st_ino, Path(path).name) if folder else None


def find_hard_link(path: str, known_paths: Iterable[str]) -> str | None:
    """Return the known path that is a hard link of a file, None if there is none."""
    status = _stat(path)
    if status is None or status.st_nlink < 2:
        return None
    candidates = ((candidate, _stat(candidate)) for candidate in known_paths)
    return next(
        (
            candidate
            for candidate, candidate_status in candidates
            if candidate_status and os.path.samestat(status, candidate_status)
        ),
        None,
    )


def _stat(path: str | Path) -> os.stat_result | None:
    """Return the status of a path, None if it is missing or no valid path."""
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None


def is_declared(settings: HostSettings, path: str) -> bool:
    """
    Return whether ``virt:shared_paths`` declares that every host has a file or a device.

    A move needs that; whether other hosts may use a file is asked of
    :func:`saltvirt.storage.sharing.is_shared`. Links and ``..`` are resolved first: the target of
    a link in a shared folder may be local.
    """
    # The name of a network disk is no path.
    if not path.startswith("/"):
        return False
    return is_below(path, settings.shared_paths)


def is_below(path: str, folders: Iterable[str | Path]) -> bool:
    """Return whether a file or a device is, or is below, any of some paths, links resolved."""
    return any(_resolve_path(path).is_relative_to(_resolve_path(str(folder))) for folder in folders)


def _resolve_path(path: str) -> Path:
    real_path = Path(os.path.realpath(path))
    if real_path.is_block_device():
        # Hosts share the device's link, but its target has a number of this host alone.
        return Path(path).parent.resolve() / Path(path).name
    return real_path


# QEMU locks bytes from 100 on, for its own access and for the access it lets others have.
_QEMUS_LOCKS = {"start": 100, "length": 200}


def _has_foreign_locks(handle: IO[Any]) -> bool:
    """Return whether another process has any of QEMU's locks on an open file."""
    return locks.request_lock(handle, locks.GETLK, fcntl.F_WRLCK, **_QEMUS_LOCKS) != fcntl.F_UNLCK


def _open_disk(path: str | Path) -> IO[bytes]:
    """
    Open a regular file or a block device to read it; raise OSError for anything else.

    Opening a pipe blocks, and opening a character device may act: a watchdog resets the host.
    """
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        mode = os.fstat(handle).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
            raise OSError(errno.EINVAL, "it is neither a file nor a block device", str(path))
        # Open the checked file itself, as the path may lead elsewhere by now.
        return open(f"/proc/self/fd/{handle}", "rb")
    finally:
        os.close(handle)


def is_open(path: str | Path) -> bool:
    """Return whether a QEMU has a disk open, here or on a host that shares its locks."""
    try:
        with _open_disk(path) as handle:
            return _has_foreign_locks(handle)
    except OSError:
        return False  # the file is missing, or its file system has no locks


@contextmanager
def keep_from_qemu(path: str | Path) -> Iterator[None]:
    """
    Lock a file or a block device, so that no QEMU opens it during the block.

    Raises StorageError if a QEMU has it open. Does nothing where locks are not supported.
    """
    with ExitStack() as stack:
        is_alone = True
        # The name may be no path, such as a Ceph image.
        with suppress(OSError):
            handle = stack.enter_context(_open_disk(path))
            locks.request_lock(handle, locks.SETLK, fcntl.F_RDLCK, **_QEMUS_LOCKS)
            is_alone = not _has_foreign_locks(handle)
        if not is_alone:
            raise tool.in_use_error(path)
        yield


def is_device(path: str | Path) -> bool:
    """Return whether a path leads to a device, even if a definition calls it a file."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISBLK(mode) or stat.S_ISCHR(mode)
