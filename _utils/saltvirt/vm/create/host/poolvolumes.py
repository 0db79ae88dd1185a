"""Disks in storage pools that are no folders: LVM, partitions, iSCSI, Ceph."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt.core.errors import StorageError
from saltvirt.core.model import Disk, RemoteSource, Vm
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.libvirt import reservations
from saltvirt.libvirt.storage import pools, volumes
from saltvirt.storage import diskpaths, policies, sharing, vmvolumes
from saltvirt.xml.storage import pooldisk, storagepool
from saltvirt.xml.storage.storagevolume import Volume

_MAX_LISTED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolVolume:
    """
    An existing or new volume of a disk.

    elsewhere
        Its network source, None if it is a device of this host.
    path
        Its device on this host, None if there is none.
    existing_bytes
        Its present size, None if it is to be made.
    is_writable
        Whether an image can be written into the new volume.
    is_snapshot
        Whether it can be a snapshot of another volume.
    """

    pool: str
    name: str
    format: str = "raw"
    elsewhere: RemoteSource | None
    path: str | None
    existing_bytes: int | None = None
    is_writable: bool = False
    is_snapshot: bool = False

    @property
    def where(self) -> str:
        """Return its name in messages and records."""
        return f"{self.pool}/{self.name}"


def is_pool_volume(
    settings: HostSettings, pools_by_name: Mapping[str, Mapping[str, Any]], disk: Disk
) -> bool:
    """Return whether a disk is, or will be, a volume of a pool that is no folder."""
    pool = disk.pool if disk.source_file else (disk.pool or settings.disk_pool)
    is_path = str(disk.source_file or "").startswith("/") or disk.elsewhere is not None
    is_drive = disk.device in ("cdrom", "floppy") and not (disk.image or disk.source_file)
    if pool is None or pool not in pools_by_name or is_path or is_drive:
        return False
    kind = pools_by_name[pool]["type"]
    return kind in pooldisk.TYPES and kind not in pooldisk.FILES


def find_volumes(
    context: Context, conn: Any, vm: Vm, pools_by_name: Mapping[str, Mapping[str, Any]]
) -> dict[str, PoolVolume]:
    """
    Return the new and existing volumes of disks, by disk name.

    Raise StorageError if a volume cannot be taken or made.

    pools_by_name
        What :func:`saltvirt.libvirt.hostfacts.pools` returns.
    """
    out: dict[str, PoolVolume] = {}
    for disk in vm.disks:
        if is_pool_volume(context.settings, pools_by_name, disk):
            planned_names = [volume.name for volume in out.values()]
            out[disk.name] = _find_volume(
                context, conn, vm.name, disk, pools_by_name, planned_names
            )
    return out


def _find_volume(
    context: Context,
    conn: Any,
    vm: str,
    disk: Disk,
    pools_by_name: Mapping[str, Mapping[str, Any]],
    planned_names: list[str],
) -> PoolVolume:
    pool = disk.pool or context.settings.disk_pool or ""
    label = f"disk {disk.name!r}"
    if not pools_by_name[pool]["active"]:
        raise StorageError(f"{label}: pool {pool!r} is not active; start it first")
    pool_definition = storagepool.read(pools.definition(conn.storagePoolLookupByName(pool)))
    volume_names = volumes.names(conn, pool)
    name = disk.source_file or _volume_name(
        pool_definition, vm, disk, [*volume_names, *planned_names]
    )
    volume = volumes.find(conn, pool, name) if name in volume_names else None
    if volume is None:
        _refuse_to_make(label, pool_definition, volume_names, name, disk)
    out = PoolVolume(
        pool=pool,
        name=name,
        elsewhere=pooldisk.remote_source(pool_definition, name),
        path=volume.path if volume and _is_device(volume) else pooldisk.path(pool_definition, name),
        existing_bytes=volume.capacity if volume else None,
        format=_format(label, pool_definition, disk, volume),
        is_writable=pool_definition.type in pooldisk.WRITABLE,
        is_snapshot=pool_definition.type == "logical",
    )
    if volume is not None and not disk.source_file:
        refuse_used(context, conn, vm, out)
    return out


def _is_device(volume: Volume) -> bool:
    return bool(volume.path and volume.path.startswith("/"))


def _volume_name(
    pool_definition: storagepool.Pool, vm: str, disk: Disk, taken_names: list[str]
) -> str:
    """Return the name of a disk's volume, as in Salt 3006."""
    if pool_definition.type == "disk":
        device = (
            pool_definition.source.devices[0].get("path", "")
            if pool_definition.source.devices
            else ""
        )
        return pooldisk.next_partition_name(device, taken_names)
    return f"{vm}_{disk.name}"


def _refuse_to_make(
    label: str, pool_definition: storagepool.Pool, volume_names: list[str], name: str, disk: Disk
) -> None:
    """Raise StorageError if a missing volume cannot be made."""
    ellipsis = ", ..." if len(volume_names) > _MAX_LISTED else ""
    hint = f"it has: {', '.join(sorted(volume_names)[:_MAX_LISTED]) or 'none'}{ellipsis}"
    if disk.source_file:
        raise StorageError(f"{label}: pool {pool_definition.name!r} has no volume {name!r}; {hint}")
    if pool_definition.type not in pooldisk.MADE:
        raise StorageError(
            f"{label}: pool {pool_definition.name!r} has no volume {name!r}, and libvirt makes "
            f"none in a pool of type {pool_definition.type}; make it where it is served, or give "
            f"one as source_file; {hint}"
        )


def _format(
    label: str, pool_definition: storagepool.Pool, disk: Disk, volume: Volume | None
) -> str:
    """Return the format of a volume; devices are raw."""
    if pool_definition.type != "gluster":
        # For these two types, Salt 3006 ignored the format, too.
        if disk.format not in (None, "raw") and pool_definition.type not in ("logical", "disk"):
            raise StorageError(
                f"{label}: volumes of pool {pool_definition.name!r} are devices, and so raw, not "
                f"{disk.format}"
            )
        return "raw"
    # This host cannot read Gluster's files; libvirt reports their formats.
    expected_format = disk.format or "qcow2"
    if (
        volume is not None
        and expected_format != "raw"
        and (volume.format != expected_format or volume.backing)
    ):
        backing_text = " over another file" if volume.backing else ""
        raise StorageError(
            f"{label}: volume {volume.name!r} of pool {pool_definition.name!r} is "
            f"{volume.format}{backing_text}, not {expected_format}; say its format"
        )
    return expected_format


def refuse_used(context: Context, conn: Any, vm: str, volume: PoolVolume) -> None:
    """Raise StorageError if an existing volume is, or may be, another VM's or in use."""
    settings, qualified_name = context.settings, volume.where
    reservations.refuse_on_record(settings, vm, [qualified_name])
    verdict = vmvolumes.judge_volume(conn, settings, policies.TAKE, volume.pool, volume.name)
    verdict.without(policies.COMING, vm).refuse(
        f"volume {qualified_name} is there already; choose another name for the disk, or for the VM"
    )
    sharing.refuse_unseen_users(
        context, volume.path, vm, volume.name, f"volume {qualified_name} is there already"
    )
    if volume.path is not None and diskpaths.is_open(volume.path):
        raise StorageError(
            f"volume {qualified_name} is there already, and another program has it open, a VM "
            "mostly; stop that, or choose another name"
        )
