"""List, create, fill, copy, resize and remove volumes of storage pools."""

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from saltvirt.core import arguments, terminal
from saltvirt.core.errors import BadArgument, StorageError
from saltvirt.core.units import human
from saltvirt.libvirt.connect import libvirt
from saltvirt.libvirt.domains import query
from saltvirt.libvirt.errorcodes import value_or
from saltvirt.libvirt.storage import anybytes, pools
from saltvirt.xml import parse, to_text
from saltvirt.xml.storage import pooldisk, storagepool, storagevolume

# Types of pools that are deleted together with all their volumes.
_GROUPS = ("logical", "zfs")
# Types of pools that allow slashes in volumes' names.
_WITH_SLASHES = ("rbd", "sheepdog", "zfs")
# libvirt's names for the formats of volumes that are files.
_FORMATS = (
    "none raw dir bochs cloop dmg iso vpc vdi fat vhd ploop cow qcow qcow2 qed vmdk unknown"
).split()
# libvirt's errors for a volume, or a pool, that was removed after it was listed.
_GONE = ("NO_STORAGE_VOL", "NO_STORAGE_POOL", "SYSTEM_ERROR", "OPERATION_INVALID")
# A Gluster pool's paths start with this; a VM's disk has only the part after the server.
_GLUSTER = re.compile(r"gluster[a-z+]*://[^/]*/")
WIPES = (
    "zero",
    "nnsa",
    "dod",
    "bsi",
    "gutmann",
    "schneier",
    "pfitzner7",
    "pfitzner33",
    "random",
    "trim",
)


def lookup(conn: Any, pool: str, volume: str) -> Any:
    """Return a volume; libvirt's error names a missing pool or volume."""
    return conn.storagePoolLookupByName(pool).storageVolLookupByName(volume)


def names(conn: Any, pool: str) -> list[str]:
    """Return the names of a running pool's volumes; names that are not UTF-8 are escaped."""
    return anybytes.names(conn.storagePoolLookupByName(pool))


def find(conn: Any, pool: str, volume: str) -> storagevolume.Volume | None:
    """Return a volume's description, None if a running pool has none of that name."""
    root = value_or(
        None, lambda: anybytes.read_volume_xml(lookup(conn, pool, volume)), "NO_STORAGE_VOL"
    )
    return None if root is None else storagevolume.read(root)


def infos(conn: Any, pool: str | None = None, volume: str | None = None) -> dict[str, Any]:
    """
    Return ``{pool: {volume: {...}}}`` of the running pools; a pool without volumes is left out.

    Each volume is read once. All volumes are read, as a volume's users depend on the backing chains
    of all domains' disks, in all pools.
    """
    volumes_by_pool = _read_all_volumes(conn)
    users = _users(conn, volumes_by_pool)
    return {
        name: {
            entry.name: storagevolume.describe(entry, sorted(users[name, entry.name]))
            for entry in entries
            if volume in (None, entry.name)
        }
        for name, entries in volumes_by_pool.items()
        if pool in (None, name) and any(volume in (None, entry.name) for entry in entries)
    }


def _read_all_volumes(conn: Any) -> dict[str, list[storagevolume.Volume]]:
    active = libvirt.VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE
    return {
        pool.name(): list(_read_pool_volumes(pool)) for pool in conn.listAllStoragePools(active)
    }


def _read_pool_volumes(pool: Any) -> Iterator[storagevolume.Volume]:
    for libvirt_volume in value_or([], lambda: pool.listAllVolumes(0), *_GONE):
        root = value_or(None, partial(anybytes.read_volume_xml, libvirt_volume), *_GONE)
        if root is not None:
            yield storagevolume.read(root)


def users(conn: Any) -> dict[tuple[str, str], set[str]]:
    """Return ``{(pool, volume): VMs}`` with the volume as a disk, or in a backing chain."""
    return _users(conn, _read_all_volumes(conn))


def find_backing_users(conn: Any) -> dict[tuple[str, str], set[str]]:
    """Return ``{(pool, volume): VMs}`` with the volume in a backing chain, as the pools list it."""
    return _users(conn, _read_all_volumes(conn), only_below=True)


def _users(
    conn: Any,
    volumes_by_pool: dict[str, list[storagevolume.Volume]],
    flags: int = 0,
    *,
    only_below: bool = False,
) -> dict[tuple[str, str], set[str]]:
    """Return ``{(pool, volume): VMs}`` with the volume as a disk, or in a backing chain."""
    paths_by_volume, backing_by_path = _places(volumes_by_pool)
    out: defaultdict[str, set[str]] = defaultdict(set)
    for vm, disk_places in _disks(conn, flags):
        for kind, *place in disk_places:
            path = (
                paths_by_volume.get((place[0], place[1])) if kind == "volume" else _real(place[0])
            )
            if only_below and path is not None:
                path = backing_by_path.get(path)
            # The second condition ends the loop on a circular chain.
            while path is not None and vm not in out[path]:
                out[path].add(vm)
                path = backing_by_path.get(path)
    return {key: out[path] for key, path in paths_by_volume.items()}


def _places(
    volumes_by_pool: dict[str, list[storagevolume.Volume]],
) -> tuple[dict[tuple[str, str], str], dict[str, str]]:
    """Return ``{(pool, volume): resolved path}``, and ``{path: backing path}``."""
    # Several pools, and links, may lead to one file.
    paths_by_volume, backing_by_path = {}, {}
    for pool, volumes in volumes_by_pool.items():
        for volume in volumes:
            path = paths_by_volume[pool, volume.name] = _real(
                volume.path or f"{pool}/{volume.name}"
            )
            if volume.backing:
                backing_by_path[path] = _real(volume.backing.path)
    return paths_by_volume, backing_by_path


def _real(path: str) -> str:
    """Return a path without symbolic links; a network volume's name as disks have it."""
    return os.path.realpath(path) if path.startswith("/") else _GLUSTER.sub("", path)


def _disks(conn: Any, flags: int = 0) -> Iterator[tuple[str, set[tuple[str, ...]]]]:
    """Yield ``(VM, places)`` of all VMs: the places of its disks and their backing files."""
    for vm, texts in query.texts(conn, flags):
        yield (
            vm,
            {place for text in texts for place in storagevolume.find_used_locations(parse(text))},
        )


def used_by_running(conn: Any, pool: str, volume: str | None = None) -> dict[str, str]:
    """Return ``{volume: VM}`` of a pool's volumes, or of one, that running VMs use."""
    return _used_by(conn, libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE, pool, volume)


def _used_by(conn: Any, flags: int, pool: str, volume: str | None) -> dict[str, str]:
    libvirt_pool = conn.storagePoolLookupByName(pool)
    libvirt_volumes = (
        [libvirt_pool.storageVolLookupByName(volume)] if volume else libvirt_pool.listAllVolumes(0)
    )
    places = [(vm, place) for vm, disk_places in _disks(conn, flags) for place in disk_places]
    # Without a VM that could use a volume, skip the calls for the volumes' paths.
    if not places:
        return {}
    by_name = {(place[1], place[2]): vm for vm, place in places if place[0] == "volume"}
    by_path = {path: vm for vm, place in places if (path := _path(conn, place))}
    out = {}
    for libvirt_volume in libvirt_volumes:
        name = anybytes.text(libvirt_volume.name)
        vm = by_name.get((pool, name)) or by_path.get(_real(anybytes.text(libvirt_volume.path)))
        if vm:
            out[name] = vm
    return out


def _path(conn: Any, place: tuple[str, ...]) -> str | None:
    """Return a disk's resolved path, None for a volume of a pool that is gone, or has no folder."""
    if place[0] == "path":
        return _real(place[1])
    pool = pools.find(conn, place[1])
    path = None if pool is None else storagepool.volume_path(parse(pool.XMLDesc(0)), place[2])
    return None if path is None else _real(path)


def refuse_running(conn: Any, pool: str, volume: str) -> None:
    """Raise StorageError if a running or saved VM uses a volume, as a disk or backing file."""
    for vm in used_by_running(conn, pool, volume).values():
        raise StorageError(f"VM {vm!r} runs and uses volume {pool}/{volume}; stop it first")
    refuse_saved(conn, pool, volume)


def refuse_saved(conn: Any, pool: str, volume: str | None = None) -> None:
    """
    Raise StorageError if a VM with a saved state uses volumes of a pool, also as backing files.

    volume
        The only volume to check. Defaults to all.
    """
    for name, vm in sorted(_used_by_saved(conn, pool, volume).items()):
        # The saved memory has cached content of the volume.
        raise StorageError(
            f"VM {vm!r} has a saved state (managed save), with which volume {pool}/{name} "
            "belongs together; start it and shut it down, or drop that state with virsh "
            f"managedsave-remove {vm}"
        )


def _used_by_saved(conn: Any, pool: str, volume: str | None) -> dict[str, str]:
    flag = libvirt.VIR_CONNECT_LIST_DOMAINS_MANAGEDSAVE
    if not conn.listAllDomains(flag):
        return {}
    # libvirt lists a disk's backing files only while its VM runs, but a volume's always.
    users_below = {
        name: min(vms)
        for (pool_name, name), vms in _users(conn, _read_all_volumes(conn), flag).items()
        if pool_name == pool and volume in (None, name) and vms
    }
    return {**users_below, **_used_by(conn, flag, pool, volume)}


def refuse_used(conn: Any, pool: str) -> None:
    """Raise StorageError if running VMs use volumes of a pool, as disks or backing files."""
    users_by_volume = used_by_running(conn, pool)
    if users_by_volume:
        users_text = terminal.join_some(
            f"{volume} by {vm}" for volume, vm in sorted(users_by_volume.items())
        )
        raise StorageError(
            f"VMs that run use volumes of pool {pool!r}: {users_text}; stop them first"
        )


def refuse_stop(conn: Any, pool: str) -> None:
    """
    Raise StorageError if stopping a pool would cut running VMs off from their disks.

    libvirt logs out of an iSCSI session, and ends a virtual host adapter, even while their devices
    are open. A mount or a volume group stays while it is in use; a folder is only released.
    """
    libvirt_pool = conn.storagePoolLookupByName(pool)
    if libvirt_pool.isActive() and storagepool.read(pools.definition(libvirt_pool)).type in (
        "iscsi",
        "scsi",
    ):
        refuse_used(conn, pool)


def find_group_pool(conn: Any, pool: str) -> storagepool.Pool | None:
    """Return a pool that is deleted together with all its volumes, None if it is another type."""
    # libvirt deletes no folder with files in it, but deletes a volume group with its volumes.
    description = storagepool.read(pools.definition(conn.storagePoolLookupByName(pool)))
    return description if description.type in _GROUPS else None


def refuse_group_of_vms(conn: Any, group: storagepool.Pool) -> None:
    """Raise StorageError if VMs, running or not, have volumes of such a pool."""
    for vm, places in _disks(conn):
        if any(_is_in_group(conn, group, place) for place in places):
            raise StorageError(
                f"VM {vm!r} has a volume of pool {group.name!r}, and all of them would go; purge "
                "that VM, or detach its disk first"
            )


def list_in_group(conn: Any, group: storagepool.Pool, places: Iterable[str]) -> list[str]:
    """Return the places, paths or POOL/VOLUME, that are volumes of such a pool."""
    return [place for place in places if _is_in_group(conn, group, _parse_place(place))]


def _parse_place(place: str) -> tuple[str, ...]:
    return ("path", place) if place.startswith("/") else ("volume", place.partition("/")[0])


def _is_in_group(conn: Any, group: storagepool.Pool, place: tuple[str, ...]) -> bool:
    if place[0] == "path":
        return storagepool.has_device(group, place[1])
    # Several pools may have the same group.
    libvirt_pool = pools.find(conn, place[1])
    return libvirt_pool is not None and storagepool.is_same_group(
        storagepool.read(pools.definition(libvirt_pool)), group
    )


def refuse_unmakeable(conn: Any, pool: str, requested: storagevolume.Volume) -> None:
    """Raise BadArgument for a name or format that libvirt refuses, also in a state's test run."""
    kind = parse(conn.storagePoolLookupByName(pool).XMLDesc(0)).get("type")
    if kind not in _WITH_SLASHES:
        arguments.object_name("volume", requested.name)
    if kind in pooldisk.FILES and requested.format is not None and requested.format not in _FORMATS:
        raise BadArgument(
            "format", f"{requested.format!r}; in a pool of type {kind} one of {', '.join(_FORMATS)}"
        )


def define(conn: Any, pool: str, requested: storagevolume.Volume) -> None:
    """Create a volume in a running pool."""
    libvirt_pool = conn.storagePoolLookupByName(pool)
    if parse(libvirt_pool.XMLDesc(0)).get("type") == "logical":
        # This project makes no thin LVM volumes.
        requested = replace(requested, allocation=requested.capacity)
    libvirt_pool.createXML(to_text(storagevolume.build(requested)), 0)


def define_xml(conn: Any, pool: str, text: str) -> None:
    """Create a volume from libvirt's own XML."""
    # Our error on malformed XML is clearer than libvirt's.
    parse(text)
    conn.storagePoolLookupByName(pool).createXML(text, 0)


def delete(
    conn: Any, pool: str, volume: str, check: Callable[[], object], *, is_dry: bool = False
) -> None:
    """
    Remove a volume with its content, unless a running VM uses it.

    check
        Raises if the volume is not free.
    is_dry
        Only check. Defaults to False.
    """
    libvirt_volume = lookup(conn, pool, volume)
    refuse_running(conn, pool, volume)
    check()
    if not is_dry:
        libvirt_volume.delete(0)


def resize(
    conn: Any,
    pool: str,
    volume: str,
    capacity: int,
    *,
    shrinks: bool,
    check: Callable[[bool], object],
) -> bool:
    """
    Set a volume's capacity in bytes; return whether that changes it.

    check
        Raises if the volume is not free; called with whether the volume shrinks.
    """
    libvirt_volume = lookup(conn, pool, volume)
    old_capacity = libvirt_volume.info()[1]
    if old_capacity == capacity:
        return False
    if capacity < old_capacity and not shrinks:
        raise BadArgument(
            "size",
            f"{pool}/{volume} has {human(old_capacity)}, and what is beyond {human(capacity)} "
            "would be lost; shrink=True does it all the same",
        )
    refuse_running(conn, pool, volume)
    is_cut = capacity < old_capacity
    check(is_cut)
    flags = libvirt.VIR_STORAGE_VOL_RESIZE_SHRINK if is_cut else 0
    libvirt_volume.resize(capacity, flags)
    return True


def clone(
    conn: Any, pool: str, volume: str, name: str, *, to_pool: str, format: str | None
) -> None:
    """Copy a volume, with the content of its backing files, into a new one."""
    source_volume = lookup(conn, pool, volume)
    refuse_running(conn, pool, volume)
    description = storagevolume.read(anybytes.read_volume_xml(source_volume))
    requested = storagevolume.Volume(
        name=name,
        capacity=description.capacity,
        allocation=description.allocation,
        format=format or description.format,
    )
    target_pool = conn.storagePoolLookupByName(to_pool)
    if parse(target_pool.XMLDesc(0)).get("type") == "logical":
        requested = replace(requested, allocation=requested.capacity, format=None)
    new_volume = target_pool.createXMLFrom(
        to_text(storagevolume.build(requested)), source_volume, 0
    )
    try:
        # A VM that was started meanwhile may have written to the source.
        refuse_running(conn, pool, volume)
    except BaseException:
        new_volume.delete(0)
        raise


def refuse_algorithm(algorithm: str) -> None:
    """Raise BadArgument unless libvirt has such a way to overwrite a volume."""
    if algorithm not in WIPES:
        raise BadArgument("algorithm", f"{algorithm!r}; one of {', '.join(WIPES)}")


def wipe(conn: Any, pool: str, volume: str, algorithm: str) -> None:
    """Overwrite the content of a volume; the caller has checked that no VM uses it."""
    lookup(conn, pool, volume).wipePattern(WIPES.index(algorithm), 0)
