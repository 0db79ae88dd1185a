"""What a clone is made of: the VM that is its source, its disks, and whether it may be copied."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltvirt import files
from saltvirt.config import HostSettings
from saltvirt.errors import ImageError, LibvirtRefused, StorageError
from saltvirt.image import qcow2, validation
from saltvirt.image.validation import ValidatedImage
from saltvirt.kvm import diskvolumes, host, lifecycle, pools, snapshots, volumes
from saltvirt.ops import chains, reservations, storage
from saltvirt.ops.migration import migrationinfo, startlock
from saltvirt.placement.answers import MigrationInfo
from saltvirt.xml import copied, pooldisk, read
from saltvirt.xml import pool as pool_
from saltvirt.xml.disk import Disk
from saltvirt.xml.volume import place_of

_FORMATS = ("qcow2", "raw")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDisk:
    """
    A disk that is copied.

    name
        What the copy's is called, as disks of ``virt.init`` are.
    image
        What is copied: its file, or a volume of a pool that is no folder.
    pool
        The pool that it is in, if any.
    volume
        Which volume of that it is; None of a file.
    is_device
        Whether such a volume can be written to as a device of this host.
    in_volume
        What the copy's volume is called, if it is one.
    """

    says: Disk
    name: str
    image: ValidatedImage
    pool: str | None = None
    volume: str | None = None
    is_device: bool = False
    in_volume: str | None = None

    @property
    def target(self) -> str:
        """The name of its device."""
        return self.says.target.get("dev", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """
    A VM as it is when it is copied.

    xml
        Its definition, with its secrets.
    info
        What it needs of a host.
    disks
        Those that are copied; the seed is not one of them.
    variables
        The file of its firmware's variables, if there is one.
    signature
        What changes when somebody uses its disks.
    has_snapshots
        Whether it has any, which the copy has not.
    """

    name: str
    xml: str
    info: MigrationInfo
    disks: tuple[SourceDisk, ...]
    variables: ValidatedImage | None
    signature: Mapping[str, tuple[int, ...]]
    has_snapshots: bool


def of(conn: Any, settings: HostSettings, name: str, clone: str) -> Source:
    """
    Return a VM as the source of a clone of that name; raise if it cannot be one, with the reason.

    Nobody else may use it meanwhile: :func:`refuse_changed` says whether somebody did.
    """
    uuid = lifecycle.uuid(conn, name)
    reservations.refuse_on_its_way(settings, name, uuid)
    reservations.refuse_building(settings, name)
    _refuse_running(conn, name)
    text = lifecycle.own_xml(conn, name)
    root = read.domain(text)
    why = [*_obstacles(conn, name), *copied.obstacles(root)]
    if why:
        raise LibvirtRefused(f"VM {name!r} cannot be cloned: {'; '.join(why)}")
    seed = copied.seed(root)
    says = [one for one in copied.disks(root) if one.path and one.target.get("dev") != seed]
    variables = read.firmware_variables(root)
    disks = tuple(_disks(conn, settings, name, clone, says))
    return Source(
        name=name,
        xml=text,
        info=migrationinfo.gather(conn, settings, name)[name],
        disks=disks,
        variables=_raw(variables) if variables and os.path.isfile(variables) else None,
        signature=_signature([*(one.image.path for one in disks), variables or ""]),
        has_snapshots=bool(snapshots.names(conn, name)),
    )


def _refuse_running(conn: Any, name: str) -> None:
    if lifecycle.is_active(conn, name):
        raise LibvirtRefused(
            f"VM {name!r} runs, and what is copied of its disks would be from several moments; "
            f"stop it first (virt.shutdown {name}), and start it again when the clone is made"
        )


def _obstacles(conn: Any, name: str) -> Iterator[str]:
    moved_to = lifecycle.moved_to(conn, name)
    if moved_to is not None:
        yield startlock.kept(moved_to, name)
    if name in lifecycle.saved(conn):
        yield (
            "it has a saved state, with which its disks belong together; start it and shut it "
            f"down, or drop that state with virsh managedsave-remove {name}"
        )


def refuse_changed(conn: Any, source: Source) -> None:
    """Raise LibvirtRefused if a VM was used since it was looked at: its copy is worth nothing."""
    _refuse_running(conn, source.name)
    if lifecycle.own_xml(conn, source.name) != source.xml:
        raise LibvirtRefused(f"VM {source.name!r} was changed while it was copied; try again")
    if _signature(source.signature) != source.signature:
        raise LibvirtRefused(f"VM {source.name!r} was used while it was copied; try again")


def _signature(paths: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return what tells a file from what it was before somebody wrote to it."""
    out: dict[str, tuple[int, ...]] = {}
    for path in paths:
        if os.path.isfile(path):
            stat = os.stat(path)
            out[path] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return out


def _disks(
    conn: Any, settings: HostSettings, name: str, clone: str, says: list[Disk]
) -> Iterator[SourceDisk]:
    known = host.pools(conn)
    folders = {
        os.path.realpath(one["path"]): pool
        for pool, one in known.items()
        if one["active"] and one["path"] and one["type"] in pooldisk.FILES
    }
    names, taken = _names(name, says), Counter[str]()
    for one in says:
        found = None if one.type == "file" else _volume(conn, one)
        path = one.path if found is None else found.path
        called = names[one.target["dev"]]
        if path is not None:
            image = _file(settings, path, one)
            # Several pools may have one folder: the copy is a volume of the one that is named.
            pool = found.pool if found else folders.get(os.path.realpath(Path(path).parent))
            yield SourceDisk(says=one, name=called, image=image, pool=pool)
        elif found is not None:
            yield _of_volume(conn, one, found, f"{clone}_{called}", taken)


def _names(vm: str, says: list[Disk]) -> dict[str, str]:
    """Return what the disks of a VM are called, by their targets: as by virt.init, if they are."""
    out = {}
    for one in says:
        _, _, last = (one.path or "").rpartition("/")
        own = last.removeprefix(f"{vm}_") if last.startswith(f"{vm}_") else ""
        # What follows is its format, and after a snapshot the name of that.
        out[one.target["dev"]] = own.partition(".")[0] or one.target["dev"]
    return out if len(set(out.values())) == len(out) else {key: key for key in out}


def _file(settings: HostSettings, path: str, says: Disk) -> ValidatedImage:
    what = f"disk {says.target['dev']} ({path})"
    if says.format not in _FORMATS:
        raise StorageError(f"{what}: format {says.format!r} is not copied; only qcow2 and raw are")
    if not os.path.isfile(path):
        raise StorageError(f"{what} is missing, or is not a file")
    if storage.is_open(path):
        raise StorageError(f"{what} is open in another program, a VM mostly; stop that first")
    # A guest may have written what looks like another format into a raw disk.
    return _raw(path) if says.format == "raw" else _overlay(settings, what, path)


def _raw(path: str) -> ValidatedImage:
    with files.open_trusted(path) as handle:
        size_bytes = os.fstat(handle.fileno()).st_size
    return ValidatedImage(path=path, format="raw", size_bytes=size_bytes)


def _overlay(settings: HostSettings, what: str, path: str) -> ValidatedImage:
    """Return a qcow2 disk all of whose content may be copied: what is below it, too."""
    chain = list(storage.chain(path))
    # After a snapshot what is below lies beside it.
    below = [*storage.backing_below(settings), *(Path(one).parent for one in chain[:1])]
    try:
        found = validation.validate(path, backing_below=below)
        for one in chain[1:]:
            if qcow2.read(one) is not None:
                validation.validate(one, backing_below=below)
    except (ImageError, OSError) as exc:
        raise StorageError(f"{what} cannot be copied: {exc}") from exc
    if found.format != "qcow2":
        raise StorageError(f"{what} is {found.format}, and its VM takes it for qcow2")
    chains.refuse(what, path)
    return found


def _volume(conn: Any, says: Disk) -> diskvolumes.Found:
    found = diskvolumes.find(conn, place_of(says))
    if found is None:
        raise StorageError(
            f"disk {says.target['dev']} ({says.path}) is in no storage pool of this host, so no "
            "copy of it can be made; make it a volume of one, or detach it"
        )
    return found


def says_of_pool(conn: Any, name: str) -> pool_.Pool:
    """Return what a pool's definition says."""
    return pool_.read(pools.definition(conn.storagePoolLookupByName(name)))


def _of_volume(
    conn: Any, says: Disk, found: diskvolumes.Found, wanted: str, taken: Counter[str]
) -> SourceDisk:
    pool = says_of_pool(conn, found.pool)
    if pool.type not in pooldisk.MADE:
        raise StorageError(
            f"disk {says.target['dev']} is in pool {pool.name!r} of type {pool.type}, where "
            "libvirt makes no volumes; detach it, and give the clone one of its own"
        )
    there = volumes.find(conn, found.pool, found.volume)
    if there is None:
        raise StorageError(f"there is no volume {found.pool}/{found.volume}")
    if pool.type == "disk":
        device = pool.source.devices[0].get("path", "") if pool.source.devices else ""
        listed = [*volumes.names(conn, pool.name), *taken]
        wanted = pooldisk.partition(device, listed)
        taken[wanted] += 1
    path = there.path or f"{found.pool}/{found.volume}"
    return SourceDisk(
        says=says,
        name=says.target["dev"],
        image=ValidatedImage(path=path, format="raw", size_bytes=there.capacity),
        pool=found.pool,
        volume=found.volume,
        is_device=pool.type in pooldisk.WRITABLE and path.startswith("/"),
        in_volume=wanted,
    )
