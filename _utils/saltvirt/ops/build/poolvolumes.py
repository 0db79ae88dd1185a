"""Disks in storage pools whose volumes are no files of a folder: LVM, partitions, iSCSI, Ceph."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt.config import HostSettings
from saltvirt.errors import StorageError
from saltvirt.kvm import pools, volumes
from saltvirt.model import Disk, Elsewhere, Vm
from saltvirt.ops import ownvolumes, reservations, storage
from saltvirt.ops.context import Context
from saltvirt.storage import policies
from saltvirt.xml import pool as pool_
from saltvirt.xml import pooldisk
from saltvirt.xml.volume import Volume

_LISTED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolVolume:
    """
    The volume that a disk is, or is to be.

    elsewhere
        Where it is, None if it is a device of this host.
    path
        Its device on this host, None if it is none.
    there_bytes
        How large it is, None if it is to be made.
    is_writable
        Whether an image can be written into it when it is made.
    is_snapshot
        Whether it can be one of another volume.
    """

    pool: str
    name: str
    format: str = "raw"
    elsewhere: Elsewhere | None
    path: str | None
    there_bytes: int | None = None
    is_writable: bool = False
    is_snapshot: bool = False

    @property
    def where(self) -> str:
        """What it is called in messages and on record."""
        return f"{self.pool}/{self.name}"


def is_in_one(settings: HostSettings, known: Mapping[str, Mapping[str, Any]], disk: Disk) -> bool:
    """Return whether a disk is, or is to be, a volume that is no file of a folder."""
    pool = disk.pool if disk.source_file else (disk.pool or settings.disk_pool)
    is_path = str(disk.source_file or "").startswith("/") or disk.elsewhere is not None
    is_drive = disk.device in ("cdrom", "floppy") and not (disk.image or disk.source_file)
    if pool is None or pool not in known or is_path or is_drive:
        return False
    kind = known[pool]["type"]
    return kind in pooldisk.TYPES and kind not in pooldisk.FILES


def of_disks(
    context: Context, conn: Any, vm: Vm, known: Mapping[str, Mapping[str, Any]]
) -> dict[str, PoolVolume]:
    """
    Return the volumes that disks are, or are to be, by the disks' names.

    known
        What :func:`saltvirt.kvm.host.pools` returns.

    Raises StorageError if one cannot be taken, or made.
    """
    out: dict[str, PoolVolume] = {}
    for disk in vm.disks:
        if is_in_one(context.settings, known, disk):
            others = [one.name for one in out.values()]
            out[disk.name] = _of_disk(context, conn, vm.name, disk, known, others)
    return out


def _of_disk(
    context: Context,
    conn: Any,
    vm: str,
    disk: Disk,
    known: Mapping[str, Mapping[str, Any]],
    others: list[str],
) -> PoolVolume:
    pool = disk.pool or context.settings.disk_pool or ""
    what = f"disk {disk.name!r}"
    if not known[pool]["active"]:
        raise StorageError(f"{what}: pool {pool!r} is not active; start it first")
    says = pool_.read(pools.definition(conn.storagePoolLookupByName(pool)))
    listed = volumes.names(conn, pool)
    name = disk.source_file or _own_name(says, vm, disk, [*listed, *others])
    there = volumes.find(conn, pool, name) if name in listed else None
    if there is None:
        _refuse_to_make(what, says, listed, name, disk)
    out = PoolVolume(
        pool=pool,
        name=name,
        elsewhere=pooldisk.elsewhere(says, name),
        path=there.path if there and _is_device(there) else pooldisk.path(says, name),
        there_bytes=there.capacity if there else None,
        format=_format(what, says, disk, there),
        is_writable=says.type in pooldisk.WRITABLE,
        is_snapshot=says.type == "logical",
    )
    if there is not None and not disk.source_file:
        refuse_used(context, conn, vm, out)
    return out


def _is_device(there: Volume) -> bool:
    return bool(there.path and there.path.startswith("/"))


def _own_name(says: pool_.Pool, vm: str, disk: Disk, taken: list[str]) -> str:
    """Return the name that the volume of a disk has, as with Salt 3006."""
    if says.type == "disk":
        device = says.source.devices[0].get("path", "") if says.source.devices else ""
        return pooldisk.partition(device, taken)
    return f"{vm}_{disk.name}"


def _refuse_to_make(what: str, says: pool_.Pool, listed: list[str], name: str, disk: Disk) -> None:
    """Raise StorageError if there is no such volume, and it cannot be made."""
    more = ", ..." if len(listed) > _LISTED else ""
    has = f"it has: {', '.join(sorted(listed)[:_LISTED]) or 'none'}{more}"
    if disk.source_file:
        raise StorageError(f"{what}: pool {says.name!r} has no volume {name!r}; {has}")
    if says.type not in pooldisk.MADE:
        raise StorageError(
            f"{what}: pool {says.name!r} has no volume {name!r}, and libvirt makes none in a pool "
            f"of type {says.type}; make it where it is served, or give one as source_file; {has}"
        )


def _format(what: str, says: pool_.Pool, disk: Disk, there: Volume | None) -> str:
    """Return the format of a volume: that of a device is its guest's business."""
    if says.type != "gluster":
        # Of these two Salt 3006 passed the format over too.
        if disk.format not in (None, "raw") and says.type not in ("logical", "disk"):
            raise StorageError(
                f"{what}: volumes of pool {says.name!r} are devices, and so raw, not {disk.format}"
            )
        return "raw"
    # Its volumes are files, which this host cannot read; libvirt says what it has seen of them.
    wanted = disk.format or "qcow2"
    if there is not None and wanted != "raw" and (there.format != wanted or there.backing):
        more = " over another file" if there.backing else ""
        raise StorageError(
            f"{what}: volume {there.name!r} of pool {says.name!r} is {there.format}{more}, and was "
            f"to be {wanted}; say its format"
        )
    return wanted


def refuse_used(context: Context, conn: Any, vm: str, volume: PoolVolume) -> None:
    """Raise StorageError if a volume that is there is another VM's."""
    settings, where = context.settings, volume.where
    reservations.refuse_on_record(settings, vm, [where])
    judged = ownvolumes.verdict(conn, settings, policies.TAKE, volume.pool, volume.name)
    judged.without(policies.COMING, vm).refuse(
        f"volume {where} is there already; choose another name for the disk, or for the VM"
    )
    others = context.namesakes(vm, volume.name)
    is_shared = volume.path is None or storage.is_declared(settings, volume.path)
    if is_shared and context.unasked:
        why = storage.may_be_of(context.unasked)
        raise StorageError(f"volume {where} is there already, {why}")
    if is_shared and others:
        raise StorageError(
            f"volume {where} is there already, and {storage.may_be_anothers(others)}"
        )
    if volume.path is None:
        return
    if storage.is_declared(settings, volume.path) and not context.is_ordered:
        raise StorageError(
            f"volume {where} is there already, on storage that all hosts share, and this host "
            "cannot see whether a VM of another one has it; salt-run virt.init asks them all, or "
            "give it as source_file"
        )
    if storage.is_open(volume.path):
        raise StorageError(
            f"volume {where} is there already, and another program has it open, a VM mostly; stop "
            "that, or choose another name"
        )
