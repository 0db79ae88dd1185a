"""Make a disk's volume in a pool that is no folder, and write an image into it."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from saltvirt.core import writelimit
from saltvirt.core.errors import StorageError
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import reservations
from saltvirt.libvirt.connect import libvirt
from saltvirt.libvirt.storage import volumes
from saltvirt.storage.images import tool
from saltvirt.vm.create.host.plandisks import DiskVolume
from saltvirt.xml.storage.storagevolume import Volume


def refuse_taken(
    conn: Any, settings: HostSettings, vm: str, disk_volumes: Iterable[DiskVolume]
) -> None:
    """
    Raise StorageError if a volume is another VM's, or appeared since the plan was decided.

    The caller holds the host's lock, and records the volumes under it.
    """
    for volume in disk_volumes:
        reservations.refuse_on_record(settings, vm, [volume.where])
        if volume.size_bytes is not None and volume.name in volumes.names(conn, volume.pool):
            raise StorageError(f"a volume {volume.where} is there already")


def make(conn: Any, volume: DiskVolume) -> None:
    """Make a volume; raise StorageError with libvirt's reason."""
    if volume.size_bytes is None:
        raise AssertionError(f"volume {volume.where} is there already")
    definition = Volume(
        name=volume.name, capacity=volume.size_bytes, allocation=0, backing=volume.backing
    )
    try:
        if volume.copied is None:
            volumes.define(conn, volume.pool, definition)
        else:
            pool = volume.pool
            volumes.clone(conn, pool, volume.copied, volume.name, to_pool=pool, format=None)
    except libvirt.libvirtError as exc:
        raise StorageError(f"cannot make volume {volume.where}: {exc}") from exc


def fill(settings: HostSettings, volume: DiskVolume) -> None:
    """Write a new volume's image into it, if it has one."""
    if volume.base is None:
        return
    if volume.path is None:
        raise AssertionError(f"volume {volume.where} is no device")
    base = volume.base
    meter = writelimit.from_settings(settings).meter(base.path, Path(base.path).parent)
    tool.write_over(base.path, base.format, volume.path, meter)
