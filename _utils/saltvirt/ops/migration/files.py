"""The files of a VM that comes: made empty on this host, filled by the other."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from saltvirt import wire
from saltvirt.config import HostSettings
from saltvirt.errors import StorageError
from saltvirt.files import private
from saltvirt.image import cache, tool
from saltvirt.ops import storage
from saltvirt.ops.context import Context
from saltvirt.ops.migration.checks import is_medium
from saltvirt.placement.answers import DiskFacts, FileFacts, MigrationInfo


def present(moving: MigrationInfo) -> list[str]:
    """Return the media of a VM that this host has already."""
    return [d.path for d in moving.disks if is_medium(d) and Path(d.path).exists()]


def missing_images(context: Context, moving: MigrationInfo) -> dict[str, int]:
    """Return ``{digest: size in bytes}`` of images that this host neither has nor can fetch."""
    out = {}
    for disk in moving.disks:
        digest = disk.base
        if disk.how == "shared" or not digest or digest in out:
            continue
        if cache.find(context.settings, digest):
            continue
        if disk.image is None:
            raise StorageError(f"nothing is known of the image {digest[:16]} below {disk.path}")
        if not cache.fetch_same(context, wire.plain(disk.image), digest):
            out[digest] = disk.image.file_bytes
    return out


def placeholder(path: str | Path, size_bytes: int) -> None:
    """Make an empty file of a size, which must not be there yet."""
    path = Path(path)
    try:
        path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        with open(path, "xb", opener=private) as handle:
            handle.truncate(size_bytes)
    except OSError as exc:
        raise StorageError(f"cannot make {path}: {exc.strerror}") from exc


def wanted(moving: MigrationInfo) -> list[DiskFacts | FileFacts]:
    """Return the disks, and the firmware's variables, of which files are to be made here."""
    here = present(moving)
    disks = [d for d in moving.disks if d.how != "shared" and d.path not in here]
    return [*disks, *(one for one in moving.nvram if one.how == "push")]


def virtual(disks: Iterable[DiskFacts | FileFacts]) -> dict[str, list[Any]]:
    """Return ``{path: [format, virtual size]}`` of the disks that libvirt copies, where known."""
    copied = [one for one in disks if isinstance(one, DiskFacts) and one.how == "copy"]
    return {
        one.path: [one.format, one.virtual_bytes]
        for one in copied
        if one.virtual_bytes is not None and storage.is_measured(one.format)
    }


def too_small(known: Mapping[str, list[Any]]) -> Iterator[str]:
    """
    Yield which disks have come with less than they had; ``known`` is what :func:`virtual` returned.

    One may be larger: its VM runs here already, and somebody may have resized it since. It is not
    smaller: libvirt resizes no disk while it copies it, and QEMU copies none into a smaller one.
    """
    for path, (fmt, wanted) in known.items():
        if not Path(path).exists():
            continue  # it is said to be missing
        sizes = storage.measure(path, fmt)
        if sizes is None:
            yield f"its disk {path} cannot be read"
        elif sizes["virtual"] < wanted:
            yield f"its disk {path} has {sizes['virtual']} bytes, not {wanted}"


def make(settings: HostSettings, disk: DiskFacts | FileFacts) -> None:
    """Make the file of one disk: of one that libvirt copies an empty overlay or disk."""
    path = Path(disk.path)
    if isinstance(disk, FileFacts) or disk.how == "push":
        placeholder(path, _known(path, disk.size_bytes))
        return
    path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    base = cache.find(settings, disk.base) if disk.base else None
    if disk.base and base is None:
        raise StorageError(f"the image {disk.base[:16]} below {path} is not on this host any more")
    backing = (base.path, base.format) if base else ()
    tool.create(path, _known(path, disk.virtual_bytes), disk.format, *backing)
    path.chmod(0o600)


def _known(path: Path, size_bytes: int | None) -> int:
    if size_bytes is None:
        raise StorageError(f"the other host does not say how big {path} is")
    return size_bytes


def seed(disks: Mapping[str, Mapping[str, Any]], force: bool) -> None:
    """Make empty disks for a VM that comes, as 3006 did; one that is there is replaced by force."""
    for target, disk in sorted(disks.items()):
        path, backing = Path(disk["file"]), disk.get("backing file") or {}
        if path.exists() and not force:
            raise StorageError(f"disk {target}: {path} is there already; force=True replaces it")
        path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        below = (backing["file"], backing["file format"] or "qcow2") if backing else ()
        path.unlink(missing_ok=True)
        tool.create(path, disk["virtual size"], disk["file format"], *below)
        path.chmod(0o600)


def image_paths(settings: HostSettings, images: Mapping[str, str]) -> dict[str, str]:
    """Return ``{path here: path there}`` of images by their digests."""
    return {cache.to_send(settings, digest).path: there for digest, there in images.items()}
