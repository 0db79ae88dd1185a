"""Take a snapshot of a VM of this host, after checking that it can have another."""

from typing import Any

from saltvirt.core.errors import LibvirtRefused
from saltvirt.libvirt.domains import snapshots
from saltvirt.storage import chains


def why_not(conn: Any, name: str, *, is_external: bool) -> str | None:
    """Return why a domain cannot have a snapshot, as far as known beforehand, else None."""
    obstacle = snapshots.why_not(conn, name, is_external=is_external)
    return obstacle or (chains.why_no_snapshot(conn, name) if is_external else None)


def take(conn: Any, vm: str, name: str, *, is_external: bool, is_quiesced: bool) -> None:
    """Take a snapshot of all disks or of none, by :mod:`saltvirt.libvirt.domains.snapshots`."""
    obstacle = chains.why_no_snapshot(conn, vm) if is_external else None
    if obstacle:
        raise LibvirtRefused(obstacle)
    snapshots.take(conn, vm, name, is_external=is_external, is_quiesced=is_quiesced)
