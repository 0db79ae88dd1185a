"""Where a VM's disks lie on this host, and what they take."""

import errno
import fcntl
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from saltvirt import files, locks, room, terminal
from saltvirt.config import HostSettings
from saltvirt.errors import ImageError, StorageError
from saltvirt.image import backing, cache, qcow2, tool, validation
from saltvirt.kvm import connect, host, lifecycle, query
from saltvirt.model import Disk
from saltvirt.units import MIB
from saltvirt.xml import pooldisk

# So many hosts are named in a line.
_MAX_NAMED_HOSTS = 10
# QEMU itself refuses chains that are much longer.
_DEPTH = 64
# Where libvirt keeps what is defined. It writes and removes the files there; the folder it leaves.
_DEFINITIONS = Path("/etc/libvirt/qemu")
# The formats whose virtual size is measured; of others the size of the file stands for it.
_MEASURED_FORMATS = ("raw", "qcow2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder for disks, and the libvirt pool it belongs to, if any."""

    folder: Path
    pool: str | None = None


def find_place(settings: HostSettings, pools: Mapping[str, Any], disk: Disk) -> Place:
    """
    Return where a disk goes: the image folder, another folder, or a libvirt pool's.

    pools
        What :func:`saltvirt.kvm.host.pools` returns.
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
    """Return the folders in which files of VMs are made: for images, of pools, by default."""
    pool_paths = [
        pool["path"] for pool in host.pools(conn).values() if pool["type"] in pooldisk.FILES
    ]
    configured_paths = [
        path for path in (settings.images, settings.disk_pool or "") if path.startswith("/")
    ]
    real_paths = {Path(os.path.realpath(path)) for path in (*configured_paths, *pool_paths) if path}
    return sorted(path for path in real_paths if path.is_dir())


def backing_below(settings: HostSettings) -> list[str | Path]:
    """Return the folders whose files a disk may name as its backing file."""
    return [cache.folder_path(settings), *settings.backing_paths]


def opened_format(settings: HostSettings, path: str | Path) -> str:
    """
    Return the format of a guest's disk that is to be opened; raise if it may not be.

    What libvirt has defined holds: a guest can write into a raw disk whatever looks like another
    format. Of a disk that no VM has, the file itself says it; a block device is raw.
    """
    # qemu-img does not find that out of a raw disk.
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
    Have a block device, so that this host cannot begin to use it while the block runs.

    Raises StorageError if it does already.
    """
    try:
        # As the kernel itself claims what it mounts, and all of a disk for its partitions.
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
    """Return the image folder, made if it is missing."""
    folder = Path(images)
    try:
        folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    except OSError as exc:
        raise StorageError(f"cannot make the image folder {images}: {exc.strerror}") from exc
    return folder


def free_mib(path: str | Path) -> tuple[int, int]:
    """Return ``(total_mib, free_mib)`` of the file system that holds ``path`` or its parent."""
    total, free = room.read_space(path)
    return total // MIB, free // MIB


def measure(path: str | Path, fmt: str) -> dict[str, Any] | None:
    """
    Return a disk file's sizes in bytes: ``{"virtual", "actual", "backing", "is_split"}``.

    ``is_split`` says whether what its guest has written is in another file, an external data file.
    Nothing but the header is read. None if the file is not there or cannot be read.
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
    """Return whether the virtual size that :func:`measure` returns is what a guest sees."""
    return fmt in _MEASURED_FORMATS


def chain(path: str, home: Path | None = None) -> Iterator[str]:
    """
    Yield a disk that is not raw and the files that it needs, by their headers; no more is read.

    These are what is below it, and external data files, of it and of what is below. A name that
    cannot be one of a file is nothing.

    home
        The folder from which the names in its header are seen, if that is not its own.
    """
    yield from (file_path for file_path, _error in walk_chain(path, home))


def chain_below(path: str, home: Path | None = None) -> list[str]:
    """Return what :func:`chain` yields, but for the disk itself."""
    return [*chain(path, home)][1:]


def walk_chain(path: str, home: Path | None = None) -> Iterator[tuple[str, str | None]]:
    """Yield what :func:`chain` does, each with why its header cannot be read, None if it can."""
    pending = [(path, home, False)]
    for _ in range(_DEPTH):
        if not pending:
            return
        path, home, is_raw = pending.pop(0)
        # It was a guest's disk, maybe, and has whatever that has written.
        needed_files, error = ([], None) if is_raw else _read_needed_files(path)
        yield path, error
        folder = home or Path(path).parent
        pending += [(str(folder / file.path), None, file.is_raw) for file in needed_files]


def _read_needed_files(path: str) -> tuple[list[backing.BackingFile], str | None]:
    """Return the files that the header of a file names, and why it cannot be read."""
    try:
        # Of what else there is, a pipe would be waited for.
        is_read = Path(path).is_file() or Path(path).is_block_device()
        names = qcow2.read_references(path) if is_read else []
    except OSError as exc:
        return [], exc.strerror or str(exc)
    # Not a path, by what is in it.
    except (ValueError, ImageError) as exc:
        return [], str(exc)
    return [file for name, fmt in names for file in backing.files_from_name(name, fmt)], None


def find_known_path(path: str, known_paths: Collection[str]) -> str | None:
    """Return which of the paths that are known is a file, None if it is none of them."""
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
    """Return a file by its folder's number, which is the same wherever that is mounted."""
    # Not by its own: a hard link is another file, whose content stays when this one goes.
    folder = _stat(Path(path).parent)
    return (folder.st_dev, folder.st_ino, Path(path).name) if folder else None


def find_hard_link(path: str, known_paths: Iterable[str]) -> str | None:
    """Return which of the paths that are known is a hard link of a file: both have one content."""
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
    """Return what is at a path, None if nothing is, or not any more."""
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None


def is_declared(settings: HostSettings, path: str) -> bool:
    """
    Return whether ``virt:shared_paths`` says that every host has a file or a device.

    Links and ``..`` are followed first: what a shared folder only links to is this host's alone.
    """
    # The disk of a network has a name that is not a path.
    if not path.startswith("/"):
        return False
    return is_below(path, settings.shared_paths)


def is_below(path: str, folders: Iterable[str | Path]) -> bool:
    """Return whether a file or a device is one of some, or below one, as :func:`is_declared`."""
    return any(_resolve_path(path).is_relative_to(_resolve_path(str(folder))) for folder in folders)


def _resolve_path(path: str) -> Path:
    real_path = Path(os.path.realpath(path))
    if real_path.is_block_device():
        # Hosts know it by the same link; what that leads to has a number of this host alone.
        return Path(path).parent.resolve() / Path(path).name
    return real_path


def unasked_hosts_message(unasked_hosts: Sequence[str]) -> str:
    """Return what is said of a disk that hosts may have a VM with which cannot be asked."""
    return (
        "on storage that all hosts share, and "
        f"{terminal.join_some(unasked_hosts, _MAX_NAMED_HOSTS)} may have a VM "
        "with it and cannot be asked; wait until all answer, or, if you know that they have no "
        "such VM, give force=True"
    )


def namesakes_message(other_vms: Iterable[str]) -> str:
    """Return what is said of a disk that other hosts may have too, and that others may mean."""
    return (
        f"by its name it may be a disk of VM {' or '.join(map(repr, other_vms))} on another host; "
        "choose another name for the disk, or for the VM, or give it as source_file"
    )


# QEMU locks bytes from 100 on, of what it does and of what it lets others do.
_QEMUS_LOCKS = {"start": 100, "length": 200}


def _has_foreign_locks(handle: IO[Any]) -> bool:
    """Return whether others have any of QEMU's locks of an open file."""
    return locks.request_lock(handle, locks.GETLK, fcntl.F_WRLCK, **_QEMUS_LOCKS) != fcntl.F_UNLCK


def _open_disk(path: str | Path) -> IO[bytes]:
    """
    Open a regular file or a block device to read it; raise OSError for anything else.

    A pipe would be waited for, and a character device may act: a watchdog that is opened resets
    the host.
    """
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        mode = os.fstat(handle).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISBLK(mode)):
            raise OSError(errno.EINVAL, "it is neither a file nor a block device", str(path))
        # What was looked at, though its name may lead elsewhere by now.
        return open(f"/proc/self/fd/{handle}", "rb")
    finally:
        os.close(handle)


def is_open(path: str | Path) -> bool:
    """Return whether a QEMU has a disk open, on any host whose locks its file system shares."""
    try:
        with _open_disk(path) as handle:
            return _has_foreign_locks(handle)
    except OSError:
        return False  # it is not there, or its file system has no locks


@contextmanager
def keep_from_qemu(path: str | Path) -> Iterator[None]:
    """
    Have a file or a block device, so that no QEMU opens it while the block runs.

    Raises StorageError if one has it open. Where nothing can be locked, nothing is.
    """
    with ExitStack() as stack:
        is_alone = True
        # It may be no path at all, as an image of Ceph's.
        with suppress(OSError):
            handle = stack.enter_context(_open_disk(path))
            locks.request_lock(handle, locks.SETLK, fcntl.F_RDLCK, **_QEMUS_LOCKS)
            is_alone = not _has_foreign_locks(handle)
        if not is_alone:
            raise tool.in_use_error(path)
        yield


def is_device(path: str | Path) -> bool:
    """Return whether a path leads to a device, however a VM calls it."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISBLK(mode) or stat.S_ISCHR(mode)


def find_not_loaded(conn: Any) -> dict[str, str]:
    """
    Return ``{VM: what to do}`` of the definitions that libvirt has, and does not know of.

    It leaves out what it cannot read when it starts: say while QEMU is updated, or after libvirt
    itself was replaced by an older one.
    """
    # Before the domains: what is undefined meanwhile is gone here too.
    definition_paths = sorted(_DEFINITIONS.glob("*.xml"))
    loaded_names = set(query.names(conn)) if definition_paths else set()
    return {
        path.stem: f"libvirt has not loaded {path}, so nobody knows which files that VM uses; its "
        "log says why: mend that and restart it, or move the file away if it is not a VM's"
        for path in definition_paths
        if path.stem not in loaded_names and path.exists()
    }


def refuse_not_loaded(conn: Any, name: str) -> None:
    """Raise StorageError if a VM of a name is defined here, and libvirt does not know of it."""
    reason = find_not_loaded(conn).get(name)
    if reason:
        raise StorageError(f"a VM called {name!r} may be on this host already: {reason}")


def settle_definitions() -> None:
    """Have it survive a crash what libvirt has defined and undefined so far."""
    for folder in (_DEFINITIONS, _DEFINITIONS / "autostart"):
        if folder.is_dir():
            files.sync_folder(folder)
