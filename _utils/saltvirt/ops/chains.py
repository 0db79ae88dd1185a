"""How many files a disk is made of: each external snapshot and each overlay adds one."""

from collections.abc import Iterable
from typing import Any

from saltvirt.config import HostSettings
from saltvirt.errors import StorageError
from saltvirt.image import validation
from saltvirt.kvm import lifecycle
from saltvirt.ops import storage

# libvirt of 2025, before 12.0, starts no VM with many more (from about 25 on).
MOST = 20


def below(path: str) -> int:
    """Return how many files a disk that is not raw has below it, by their headers."""
    return len(storage.chain_below(path))


def refuse(what: str, path: str, *, more: int = 0) -> None:
    """
    Raise StorageError if a disk would have too many files below it.

    what
        What the line calls it, such as ``disk 'system'``.
    more
        How many files are added on top of ``path``.
    """
    count = below(path)
    if count + more > MOST:
        raise StorageError(
            f"{what}: {path} has {count} files below it, and a disk may have {MOST} "
            "(before 12.0 libvirt starts no VM with many more); make it one file first: "
            "qemu-img convert -O qcow2"
        )


def validated(
    settings: HostSettings, what: str, path: str, *, more: int = 0
) -> validation.ValidatedImage:
    """Return what a disk's file is; raise if it is no image, or is refused by :func:`refuse`."""
    found = validation.validate(path, backing_below=storage.backing_below(settings))
    if found.format != "raw":
        refuse(what, path, more=more)
    return found


def why_no_snapshot(conn: Any, name: str) -> str | None:
    """Return why a domain cannot have one more external snapshot, None if it can."""
    for path in sorted(lifecycle.overlays(conn) & set(lifecycle.file_paths(conn, name))):
        count = below(path)
        if count >= MOST:
            return (
                f"disk {path} of VM {name!r} has {count} files below it, and libvirt before 12.0 "
                f"starts no VM with many more than {MOST}; delete an external snapshot first "
                f"(virt.delete_snapshots {name} NAME; before libvirt 9.9: virsh blockcommit, see "
                "docs/snapshots.md)"
            )
    return None


def deep(conn: Any) -> dict[str, list[str]]:
    """Return ``{VM: its disks with more files below them than a disk may have}``."""
    found = {name: _deep(paths) for name, paths in lifecycle.overlays_of(conn).items()}
    return {name: paths for name, paths in sorted(found.items()) if paths}


def _deep(paths: Iterable[str]) -> list[str]:
    return sorted(path for path in paths if below(path) > MOST)
