"""Decide from facts how a build makes or takes a VM's disks; pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from saltvirt.core.errors import BadArgument
from saltvirt.core.model import Deployment, Disk
from saltvirt.core.units import MIB
from saltvirt.storage.images import clone, validation
from saltvirt.vm.create.host import buildfacts, poolvolumes
from saltvirt.vm.create.host.buildfacts import Content
from saltvirt.xml.storage import storagevolume


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFile:
    """
    A disk file to be made.

    layout
        What :func:`saltvirt.storage.images.clone.plan` returns.
    base
        The image or file that it is made from, None for an empty disk.
    """

    path: str
    layout: Mapping[str, Any]
    base: validation.ValidatedImage | None = None
    pool: str | None = None

    @property
    def how(self) -> str:
        """Return how the file is made: ``empty``, ``overlay`` or ``copy``."""
        if self.base is None:
            return "empty"
        return "overlay" if self.layout["is_overlay"] else "copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingFile:
    """
    An existing disk file, taken as it is.

    grown_bytes
        The new size, None if it stays.
    """

    path: str
    format: str
    grown_bytes: int | None = None

    @property
    def how(self) -> str:
        """Return ``existing``: the file is not made."""
        return "existing"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskVolume:
    """
    A disk's volume in a pool that is no folder.

    path
        Its device on this host, None if there is none.
    size_bytes
        Its size when made; None for an existing volume, which is taken as it is.
    base
        The image to be written into it, if any.
    backing
        The volume that it is a snapshot of, if any.
    copied
        The volume of its pool that libvirt copies it from, if any.
    """

    pool: str
    name: str
    path: str | None
    size_bytes: int | None
    base: validation.ValidatedImage | None = None
    backing: storagevolume.Backing | None = None
    copied: str | None = None

    @property
    def how(self) -> str:
        """Return how it is made: ``existing`` (not at all), ``snapshot``, ``empty``, ``copy``."""
        if self.size_bytes is None:
            return "existing"
        return "snapshot" if self.backing else "copy" if self.base or self.copied else "empty"

    @property
    def where(self) -> str:
        """Return its name in messages and records."""
        return f"{self.pool}/{self.name}"


File = DiskFile | ExistingFile | DiskVolume
PlannedDisks = list[tuple[Disk, File | None]]
_File = TypeVar("_File", DiskFile, ExistingFile, DiskVolume)


def plan_disks(deployment: Deployment, content: Content) -> PlannedDisks:
    """Return the disks with their paths and formats, and the files that a build makes or takes."""
    return [_plan_disk(deployment, content, disk) for disk in deployment.vm.disks]


def _plan_disk(deployment: Deployment, content: Content, disk: Disk) -> tuple[Disk, File | None]:
    """Return ``(disk with path and format, its file to be made or taken)``."""
    if disk.name in content.existing:
        return _plan_existing(disk, content.existing[disk.name])
    if disk.name in content.volumes:
        return _plan_volume(deployment, content, disk, content.volumes[disk.name])
    if disk.elsewhere:
        return replace(disk, format="raw"), None
    if not buildfacts.is_made(disk):
        user_file = content.user_files.get(disk.name)
        return (
            replace(disk, path=user_file.path, format=user_file.format) if user_file else disk
        ), None
    base = content.images.get(disk.image) if disk.image else content.user_files.get(disk.name)
    if disk.image and base is None:
        return disk, None
    if disk.backing_path and not disk.image:
        disk = replace(disk, overlay=True)
    layout = _layout(disk, base, deployment.enable_qcow)
    place = content.places[disk.name]
    path = buildfacts.disk_path(deployment.vm, disk, place, layout["format"])
    file = DiskFile(path=path, layout=layout, base=base, pool=place.pool)
    size_mib = layout["size_bytes"] // MIB
    return replace(disk, path=path, format=layout["format"], size_mib=size_mib), file


def _plan_volume(
    deployment: Deployment, content: Content, disk: Disk, pool_volume: poolvolumes.PoolVolume
) -> tuple[Disk, DiskVolume | None]:
    """Return ``(disk with its volume's location, volume)``."""
    base = content.images.get(disk.image) if disk.image else None
    if pool_volume.existing_bytes is None and disk.image and base is None:
        return disk, None
    size_bytes = (
        None
        if pool_volume.existing_bytes is not None
        else _volume_size(deployment, disk, pool_volume, base)
    )
    disk_volume = DiskVolume(
        pool=pool_volume.pool,
        name=pool_volume.name,
        path=pool_volume.path,
        size_bytes=size_bytes,
        base=base,
        backing=_backing(disk, pool_volume) if size_bytes else None,
    )
    size_mib = (pool_volume.existing_bytes or size_bytes or 0) // MIB
    placed_disk = replace(
        disk, path=pool_volume.path, volume=pool_volume.where, elsewhere=pool_volume.elsewhere
    )
    return replace(placed_disk, format=pool_volume.format, size_mib=size_mib), disk_volume


def _volume_size(
    deployment: Deployment,
    disk: Disk,
    pool_volume: poolvolumes.PoolVolume,
    base: validation.ValidatedImage | None,
) -> int:
    """Return the size of a new volume; refuse a disk that its pool cannot hold."""
    argument = f"disk {disk.name!r}"
    if base is not None and not pool_volume.is_writable:
        raise BadArgument(
            argument,
            f"an image cannot be written into pool {pool_volume.pool!r}; make volume "
            f"{pool_volume.name!r} of it first, by what serves that, and it is taken",
        )
    if disk.overlay or (base is not None and deployment.enable_qcow):
        raise BadArgument(
            argument, f"a volume of pool {pool_volume.pool!r} is no overlay; it is a copy"
        )
    if base is not None:
        raw_disk = replace(disk, format="raw", overlay=False)
        return int(clone.plan(raw_disk, base, None)["size_bytes"])
    if not disk.size_mib:
        raise BadArgument(argument, "has neither a size nor an image")
    return disk.size_mib * MIB


def _backing(disk: Disk, pool_volume: poolvolumes.PoolVolume) -> storagevolume.Backing | None:
    if not disk.backing_path:
        return None
    if disk.image or not pool_volume.is_snapshot:
        reason = "with an image" if disk.image else f"in pool {pool_volume.pool!r}"
        raise BadArgument(f"disk {disk.name!r}", f"cannot have a backing store {reason}")
    return storagevolume.Backing(path=disk.backing_path, format=disk.backing_format or "raw")


def _plan_existing(
    disk: Disk, validated_image: validation.ValidatedImage
) -> tuple[Disk, ExistingFile]:
    requested_bytes = disk.size_mib * MIB if disk.size_mib and disk.is_sized_by_user else 0
    grown_bytes = requested_bytes if requested_bytes > validated_image.size_bytes else None
    size_mib = max(validated_image.size_bytes, requested_bytes) // MIB
    file = ExistingFile(
        path=validated_image.path, format=validated_image.format, grown_bytes=grown_bytes
    )
    return replace(
        disk, path=validated_image.path, format=validated_image.format, size_mib=size_mib
    ), file


def _layout(
    disk: Disk, base: validation.ValidatedImage | None, enable_qcow: bool | None
) -> Mapping[str, Any]:
    if base is not None:
        return clone.plan(disk, base, enable_qcow)
    fmt = disk.format or "qcow2"
    if fmt not in ("qcow2", "raw"):
        raise BadArgument(f"disk {disk.name!r}", f"format {fmt!r}; qcow2 or raw")
    if not disk.size_mib:
        raise BadArgument(f"disk {disk.name!r}", "has neither a size nor an image")
    return {"format": fmt, "size_bytes": disk.size_mib * MIB, "is_overlay": False}


def select(pairs: PlannedDisks, kind: type[_File]) -> tuple[_File, ...]:
    """Return the files of one kind, or the volumes, from the result of :func:`plan_disks`."""
    return tuple(file for _disk, file in pairs if isinstance(file, kind))
