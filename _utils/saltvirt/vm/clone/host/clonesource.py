"""The source of a clone: a VM, its disks, and whether it may be copied."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltvirt.core import files
from saltvirt.core.errors import ImageError, LibvirtRefused, StorageError
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import hostfacts, reservations
from saltvirt.libvirt.domains import lifecycle, snapshots
from saltvirt.libvirt.storage import diskvolumes, pools, volumes
from saltvirt.placement.answers import MigrationInfo
from saltvirt.storage import chains, diskpaths
from saltvirt.storage.images import qcow2, validation
from saltvirt.storage.images.validation import ValidatedImage
from saltvirt.vm.power.host import startlock
from saltvirt.vm.show.host import migrationinfo
from saltvirt.xml.domain.disk import Disk
from saltvirt.xml.edit import copied, readdomain
from saltvirt.xml.storage import pooldisk, storagepool

_FORMATS = ("qcow2", "raw")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDisk:
    """
    A disk to be copied.

    definition
        The disk in the source's definition.
    name
        The copy's disk name, as for ``virt.init``.
    image
        The source's file, or its volume in a pool that is no folder.
    pool
        The source's pool, if any.
    volume
        The source's volume in ``pool``, None for a file.
    is_device
        Whether the copy's volume can be written as a device of this host.
    in_volume
        The name of the copy's volume, if it is one.
    """

    definition: Disk
    name: str
    image: ValidatedImage
    pool: str | None = None
    volume: str | None = None
    is_device: bool = False
    in_volume: str | None = None

    @property
    def target(self) -> str:
        """The disk's target in the guest."""
        return self.definition.target.get("dev", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """
    A VM as it is when it is copied.

    xml
        Its definition, with secrets.
    info
        Its requirements of a host.
    disks
        The disks to be copied; the seed is not copied.
    variables
        The file of its firmware's variables, if any.
    signature
        ``{path: stat fields}`` of its files, to detect writes during the copy.
    has_snapshots
        Whether it has snapshots; the clone gets none.
    """

    name: str
    xml: str
    info: MigrationInfo
    disks: tuple[SourceDisk, ...]
    variables: ValidatedImage | None
    signature: Mapping[str, tuple[int, ...]]
    has_snapshots: bool


def read_source(conn: Any, settings: HostSettings, name: str, clone: str) -> Source:
    """
    Return a VM as the source of a clone; raise with the reason if it cannot be cloned.

    The VM must not be used until the copy is done; :func:`refuse_changed` checks that.
    """
    uuid = lifecycle.uuid(conn, name)
    reservations.refuse_on_its_way(settings, name, uuid)
    reservations.refuse_building(settings, name)
    _refuse_running(conn, name)
    definition_xml = lifecycle.secure_xml(conn, name)
    root = readdomain.domain(definition_xml)
    obstacles = [*_find_obstacles(conn, name), *copied.obstacles(root)]
    if obstacles:
        raise LibvirtRefused(f"VM {name!r} cannot be cloned: {'; '.join(obstacles)}")
    seed = copied.seed(root)
    domain_disks = [
        disk for disk in copied.disks(root) if disk.path and disk.target.get("dev") != seed
    ]
    variables = readdomain.firmware_variables(root)
    former_names = readdomain.notes(root).former
    disks = tuple(_read_disks(conn, settings, name, former_names, clone, domain_disks))
    return Source(
        name=name,
        xml=definition_xml,
        info=migrationinfo.gather(conn, settings, name)[name],
        disks=disks,
        variables=_describe_raw(variables) if variables and os.path.isfile(variables) else None,
        signature=_signature([*(source_disk.image.path for source_disk in disks), variables or ""]),
        has_snapshots=bool(snapshots.names(conn, name)),
    )


def _refuse_running(conn: Any, name: str) -> None:
    if lifecycle.is_active(conn, name):
        raise LibvirtRefused(
            f"VM {name!r} runs, and what is copied of its disks would be from several moments; "
            f"stop it first (virt.shutdown {name}), and start it again when the clone is made"
        )


def _find_obstacles(conn: Any, name: str) -> Iterator[str]:
    moved_to = lifecycle.moved_to(conn, name)
    if moved_to is not None:
        yield startlock.kept_message(moved_to, name)
    if name in lifecycle.saved(conn):
        yield (
            "it has a saved state, with which its disks belong together; start it and shut it "
            f"down, or drop that state with virsh managedsave-remove {name}"
        )


def refuse_changed(conn: Any, source: Source) -> None:
    """Raise LibvirtRefused if a VM was used since it was read: its copy is inconsistent then."""
    _refuse_running(conn, source.name)
    if lifecycle.secure_xml(conn, source.name) != source.xml:
        raise LibvirtRefused(f"VM {source.name!r} was changed while it was copied; try again")
    if _signature(source.signature) != source.signature:
        raise LibvirtRefused(f"VM {source.name!r} was used while it was copied; try again")


def _signature(paths: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return ``{path: stat fields}``, which differ after a write to a file."""
    out: dict[str, tuple[int, ...]] = {}
    for path in paths:
        if os.path.isfile(path):
            stat = os.stat(path)
            out[path] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return out


def _read_disks(
    conn: Any,
    settings: HostSettings,
    name: str,
    former_names: Iterable[str],
    clone: str,
    domain_disks: list[Disk],
) -> Iterator[SourceDisk]:
    pools_by_name = hostfacts.pools(conn)
    folders = {
        os.path.realpath(pool_info["path"]): pool
        for pool, pool_info in pools_by_name.items()
        if pool_info["active"] and pool_info["path"] and pool_info["type"] in pooldisk.FILES
    }
    names, taken_names = _name_disks([name, *former_names], domain_disks), Counter[str]()
    for disk in domain_disks:
        location = None if disk.type == "file" else _locate_volume(conn, disk)
        path = disk.path if location is None else location.path
        disk_name = names[disk.target["dev"]]
        if path is not None:
            image = _validate_file(settings, path, disk)
            # Several pools may share a folder: prefer the one that the definition names.
            pool = location.pool if location else folders.get(os.path.realpath(Path(path).parent))
            yield SourceDisk(definition=disk, name=disk_name, image=image, pool=pool)
        elif location is not None:
            yield _read_volume(conn, disk, location, f"{clone}_{disk_name}", taken_names)


def _name_disks(vm_names: Iterable[str], domain_disks: list[Disk]) -> dict[str, str]:
    """Return ``{target: disk name}``; virt.init's names where the files show them."""
    out, prefixes = {}, [f"{name}_" for name in vm_names]
    for disk in domain_disks:
        _, _, file_name = (disk.path or "").rpartition("/")
        prefix = next(filter(file_name.startswith, prefixes), None)
        suffix = "" if prefix is None else file_name.removeprefix(prefix)
        # The format follows, or the name of a snapshot.
        out[disk.target["dev"]] = suffix.partition(".")[0] or disk.target["dev"]
    return out if len(set(out.values())) == len(out) else {key: key for key in out}


def _validate_file(settings: HostSettings, path: str, disk: Disk) -> ValidatedImage:
    label = f"disk {disk.target['dev']} ({path})"
    if disk.format not in _FORMATS:
        raise StorageError(f"{label}: format {disk.format!r} is not copied; only qcow2 and raw are")
    if not os.path.isfile(path):
        raise StorageError(f"{label} is missing, or is not a file")
    if diskpaths.is_open(path):
        raise StorageError(f"{label} is open in another program, a VM mostly; stop that first")
    # Do not probe: a guest may have written another format's header into a raw disk.
    return _describe_raw(path) if disk.format == "raw" else _validate_overlay(settings, label, path)


def _describe_raw(path: str) -> ValidatedImage:
    with files.open_trusted(path) as handle:
        size_bytes = os.fstat(handle.fileno()).st_size
    return ValidatedImage(path=path, format="raw", size_bytes=size_bytes)


def _validate_overlay(settings: HostSettings, label: str, path: str) -> ValidatedImage:
    """Return a qcow2 disk if its whole backing chain may be copied."""
    chain = list(diskpaths.chain(path))
    # After an external snapshot, the backing file is in the disk's own folder.
    allowed_folders = [
        *diskpaths.backing_below(settings),
        *(Path(backing_path).parent for backing_path in chain[:1]),
    ]
    try:
        validated_image = validation.validate(path, backing_below=allowed_folders)
        for backing_path in chain[1:]:
            if qcow2.read(backing_path) is not None:
                validation.validate(backing_path, backing_below=allowed_folders)
    except (ImageError, OSError) as exc:
        raise StorageError(f"{label} cannot be copied: {exc}") from exc
    if validated_image.format != "qcow2":
        raise StorageError(f"{label} is {validated_image.format}, and its VM takes it for qcow2")
    chains.refuse_too_deep(label, path)
    return validated_image


def _locate_volume(conn: Any, disk: Disk) -> diskvolumes.DiskVolume:
    location = diskvolumes.find(conn, disk)
    if location is None:
        raise StorageError(
            f"disk {disk.target['dev']} ({disk.path}) is in no storage pool of this host, so no "
            "copy of it can be made; make it a volume of one, or detach it"
        )
    return location


def read_pool(conn: Any, name: str) -> storagepool.Pool:
    """Return a pool's parsed definition."""
    return storagepool.read(pools.definition(conn.storagePoolLookupByName(name)))


def _read_volume(
    conn: Any,
    disk: Disk,
    location: diskvolumes.DiskVolume,
    volume_name: str,
    taken_names: Counter[str],
) -> SourceDisk:
    pool = read_pool(conn, location.pool)
    if pool.type not in pooldisk.MADE:
        raise StorageError(
            f"disk {disk.target['dev']} is in pool {pool.name!r} of type {pool.type}, where "
            "libvirt makes no volumes; detach it, and give the clone one of its own"
        )
    volume = volumes.find(conn, location.pool, location.volume)
    if volume is None:
        raise StorageError(f"there is no volume {location.pool}/{location.volume}")
    if pool.type == "disk":
        device = pool.source.devices[0].get("path", "") if pool.source.devices else ""
        volume_names = [*volumes.names(conn, pool.name), *taken_names]
        volume_name = pooldisk.next_partition_name(device, volume_names)
        taken_names[volume_name] += 1
    path = volume.path or f"{location.pool}/{location.volume}"
    return SourceDisk(
        definition=disk,
        name=disk.target["dev"],
        image=ValidatedImage(path=path, format="raw", size_bytes=volume.capacity),
        pool=location.pool,
        volume=location.volume,
        is_device=pool.type in pooldisk.WRITABLE and path.startswith("/"),
        in_volume=volume_name,
    )
