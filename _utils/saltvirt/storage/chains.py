"""Limit the length of backing chains; take snapshots, of which each external one adds a file."""

from typing import Any

from saltvirt.core.errors import LibvirtRefused, StorageError
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt.domains import lifecycle, snapshots
from saltvirt.storage import diskpaths
from saltvirt.storage.images import validation

# libvirt before 12.0 starts no VM with a chain of about 25 files or more.
MAX_BELOW = 20


def count_below(path: str) -> int:
    """Return the number of files below a disk that is not raw, according to their headers."""
    return len(diskpaths.chain_below(path))


def refuse_too_deep(label: str, path: str, *, more: int = 0) -> None:
    """
    Raise StorageError if a disk would have too many files below it.

    label
        The disk's name in the message, such as ``disk 'system'``.
    more
        The number of files to be added on top of ``path``.
    """
    count = count_below(path)
    if count + more > MAX_BELOW:
        raise StorageError(
            f"{label}: {path} has {count} files below it, and a disk may have {MAX_BELOW} "
            "(before 12.0 libvirt starts no VM with many more); make it one file first: "
            "qemu-img convert -O qcow2"
        )


def validate(
    settings: HostSettings, label: str, path: str, *, more: int = 0
) -> validation.ValidatedImage:
    """Validate a disk's file as an image; see :func:`refuse_too_deep` for the arguments."""
    image = validation.validate(path, backing_below=diskpaths.backing_below(settings))
    if image.format != "raw":
        refuse_too_deep(label, path, more=more)
    return image


def why_no_snapshot(conn: Any, name: str) -> str | None:
    """Return why a domain cannot have another external snapshot, None if it can."""
    for path in sorted(lifecycle.overlays(conn) & set(lifecycle.file_paths(conn, name))):
        count = count_below(path)
        if count >= MAX_BELOW:
            return (
                f"disk {path} of VM {name!r} has {count} files below it, and libvirt before 12.0 "
                f"starts no VM with many more than {MAX_BELOW}; delete an external snapshot first "
                f"(virt.delete_snapshots {name} NAME; before libvirt 9.9: virsh blockcommit, see "
                "docs/snapshots.md)"
            )
    return None


def find_too_deep(conn: Any) -> dict[str, list[str]]:
    """Return ``{VM: disks with too many files below them}``."""
    paths_by_vm = {
        name: sorted(path for path in paths if count_below(path) > MAX_BELOW)
        for name, paths in lifecycle.overlays_by_vm(conn).items()
    }
    return {name: paths for name, paths in sorted(paths_by_vm.items()) if paths}


def why_not(conn: Any, name: str, *, is_external: bool) -> str | None:
    """Return why a domain cannot have a snapshot, as far as known beforehand, else None."""
    obstacle = snapshots.why_not(conn, name, is_external=is_external)
    return obstacle or (why_no_snapshot(conn, name) if is_external else None)


def take(conn: Any, vm: str, name: str, *, is_external: bool, is_quiesced: bool) -> None:
    """Take a snapshot of all disks or of none, by :mod:`saltvirt.libvirt.domains.snapshots`."""
    obstacle = why_no_snapshot(conn, vm) if is_external else None
    if obstacle:
        raise LibvirtRefused(obstacle)
    snapshots.take(conn, vm, name, is_external=is_external, is_quiesced=is_quiesced)
