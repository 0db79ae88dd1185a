"""Make a VM's disk from a base image: overlay, reflink or sparse copy."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from saltvirt.core import files
from saltvirt.core.errors import BadArgument, StorageError
from saltvirt.core.model import Disk
from saltvirt.core.units import MIB, human
from saltvirt.core.writelimit import Meter, Room
from saltvirt.storage.images import tool
from saltvirt.storage.images.validation import ValidatedImage

_Opener = Callable[[str, int], int] | None
# linux/fs.h: _IOW(0x94, 9, int). File systems without it fail with one of these errors.
_FICLONE = 0x40049409
_NO_REFLINK = {errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS}


def copy(source: str | Path, target: str | Path, meter: Meter, opener: _Opener = None) -> None:
    """
    Copy a file: as a reflink if the file system can, else without its holes.

    opener
        Opens the source. Defaults to following every link.
    """
    with (
        open(source, "rb", opener=opener) as inp,
        open(target, "wb", opener=files.open_no_link) as out,
    ):
        try:
            fcntl.ioctl(out, _FICLONE, inp.fileno())
        except OSError as exc:
            if exc.errno not in _NO_REFLINK:
                raise
            _copy_sparse(inp.fileno(), out.fileno(), meter)


def _copy_sparse(source: int, target: int, meter: Meter) -> None:
    stat = os.fstat(source)
    size = stat.st_size
    meter.expect(min(size, stat.st_blocks * 512))
    os.ftruncate(target, size)
    offset = written_bytes = 0
    while offset < size:
        try:
            offset = os.lseek(source, offset, os.SEEK_DATA)
        except OSError as exc:
            if exc.errno == errno.ENXIO:  # only a hole is left
                return
            raise
        data_end = os.lseek(source, offset, os.SEEK_HOLE)
        os.lseek(target, offset, os.SEEK_SET)
        while offset < data_end:
            sent = os.sendfile(target, source, offset, min(data_end - offset, 16 * MIB))
            offset, written_bytes = offset + sent, written_bytes + sent
            meter.check(written_bytes)


def plan(disk: Disk, base: ValidatedImage, enable_qcow: bool | None) -> dict[str, Any]:
    """
    Return the layout of a new disk: ``{"format", "size_bytes", "is_overlay"}``.

    Refuse a size below the image's, which would lose data, and a raw overlay.
    """
    size_bytes = _size_bytes(disk, base)
    is_overlay = _is_overlay(disk, base, enable_qcow)
    fmt = "qcow2" if is_overlay else (disk.format or base.format)
    if fmt not in ("qcow2", "raw"):
        raise BadArgument(f"disk {disk.name!r}", f"format {fmt!r}; qcow2 or raw")
    return {"format": fmt, "size_bytes": size_bytes, "is_overlay": is_overlay}


def _size_bytes(disk: Disk, base: ValidatedImage) -> int:
    """Return the size of a disk: as requested, but not below its image's."""
    requested_bytes = disk.size_mib * MIB if disk.size_mib else 0
    if requested_bytes and requested_bytes < base.size_bytes and disk.is_sized_by_user:
        raise BadArgument(
            f"disk {disk.name!r}",
            f"size {disk.size_mib} MiB is less than the image's {human(base.size_bytes)}, "
            "and a disk is never shrunk; give a larger size",
        )
    return max(requested_bytes, base.size_bytes)


def _is_overlay(disk: Disk, base: ValidatedImage, enable_qcow: bool | None) -> bool:
    """Return whether a disk is an overlay; by default, if its image is qcow2."""
    choice = enable_qcow if enable_qcow is not None else disk.overlay
    if choice and disk.format == "raw":
        raise BadArgument(f"disk {disk.name!r}", "an overlay is always qcow2, not raw")
    if choice is None:
        return base.format == "qcow2" and disk.format in (None, "qcow2")
    return bool(choice)


def make(base: ValidatedImage, path: str | Path, disk_plan: Mapping[str, Any], room: Room) -> None:
    """Make a disk in its file, by the layout of :func:`plan`; the caller syncs the file."""
    meter = room.meter(base.path, Path(path).parent)
    with _translate_errors(path):
        if disk_plan["is_overlay"]:
            tool.create(path, disk_plan["size_bytes"], "qcow2", base.path, base.format)
        elif disk_plan["format"] == base.format and not _has_more(base, disk_plan):
            copy(base.path, path, meter, files.open_by_trusted_links)
        else:
            tool.convert(base.path, base.format, path, disk_plan["format"], meter)
        files.restrict(path)
        if not disk_plan["is_overlay"] and disk_plan["size_bytes"] > base.size_bytes:
            tool.resize(path, disk_plan["size_bytes"], disk_plan["format"])


def _has_more(base: ValidatedImage, disk_plan: Mapping[str, Any]) -> bool:
    """Return whether a plain copy of a file could differ from its visible content."""
    # A qcow2 file may contain snapshots, and lacks the content of its backing chain.
    return bool(disk_plan.get("is_whole")) and base.format == "qcow2"


def empty(path: str | Path, size_bytes: int, fmt: str) -> None:
    """Make an empty disk in its file; the caller syncs the file."""
    with _translate_errors(path):
        tool.create(path, size_bytes, fmt)
        Path(path).chmod(0o600)


@contextmanager
def _translate_errors(path: str | Path) -> Iterator[None]:
    """Turn an OSError into a StorageError; the caller removes the file."""
    try:
        yield
    except OSError as exc:
        raise StorageError(f"cannot write {path}: {exc.strerror}") from exc


@contextmanager
def remove_on_failure(path: str | Path) -> Iterator[None]:
    """Remove the incomplete file if the block fails; turn an OSError into a StorageError."""
    try:
        with _translate_errors(path):
            yield
    except BaseException:
        Path(path).unlink(missing_ok=True)
        raise
