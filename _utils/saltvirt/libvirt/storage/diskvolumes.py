"""Find the volume that is a VM's disk, describe it, and remove it."""

import logging
import posixpath
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from saltvirt.core.errors import StorageError
from saltvirt.libvirt import hostfacts
from saltvirt.libvirt.connect import libvirt
from saltvirt.libvirt.errorcodes import has_code, value_or
from saltvirt.libvirt.storage import anybytes, pools, volumes
from saltvirt.xml import parse
from saltvirt.xml.domain.disk import Disk
from saltvirt.xml.storage import storagepool, storagevolume

log = logging.getLogger(__name__)
# Types of pools in which libvirt cannot delete a volume.
_FIXED = ("iscsi", "iscsi-direct", "mpath", "scsi")
# libvirt's codes for a volume that is not there.
_GONE = ("NO_STORAGE_VOL", "NO_STORAGE_POOL")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskVolume:
    """A volume; ``path`` is its file, None if only libvirt can remove it."""

    pool: str
    volume: str
    path: str | None
    can_go: bool = True


def find(conn: Any, disk: Disk) -> DiskVolume | None:
    """
    Return the volume that is a disk, None if the disk is in no pool of this host.

    Raises StorageError if its pool does not run: then the pool's content is unknown.
    """
    source = disk.source or {}
    if disk.type == "volume":
        location = source.get("pool", ""), source.get("volume", "")
    elif disk.type == "block":
        location = _by_path(conn, source.get("dev", ""))
    else:
        location = _by_network(conn, disk)
    pool = pools.find(conn, location[0]) if all(location) else None
    # A name with a slash, or of dots, could lead out of the pool's folder.
    if pool is None or "/" in location[1] or location[1] in (".", ".."):
        return None
    if not pool.isActive():
        raise StorageError(
            f"disk {location[1]!r} is in storage pool {location[0]!r}, which does not run, so "
            f"nothing is removed; virt.pool_start {location[0]} first"
        )
    root = pools.definition(pool)
    return DiskVolume(
        pool=location[0],
        volume=location[1],
        path=storagepool.volume_path(root, location[1]),
        can_go=storagepool.read(root).type not in _FIXED,
    )


def _by_path(conn: Any, path: str) -> tuple[str, str]:
    def read() -> tuple[str, str]:
        libvirt_volume = conn.storageVolLookupByPath(path)
        return libvirt_volume.storagePoolLookupByVolume().name(), libvirt_volume.name()

    location: tuple[str, str] = value_or(("", ""), read, "NO_STORAGE_VOL")
    return location


def _by_network(conn: Any, disk: Disk) -> tuple[str, str]:
    """Return the pool and volume of a network disk that Salt 3006 made, by protocol and servers."""
    source = disk.source or {}
    name, _, volume = source.get("name", "").partition("/")
    for pool in conn.listAllStoragePools(0):
        description = storagepool.read(pools.definition(pool))
        is_same_source = (description.type, description.source.name) == (
            source.get("protocol"),
            name,
        )
        if is_same_source and _servers(description.source.hosts) == _servers(disk.hosts):
            return pool.name(), volume
    return "", ""


class Pools:
    """
    The pools that disks of many VMs may be in.

    They are listed once, for the first disk that may be in one. A volume is looked up only if its
    disk lies in the folder of a running pool.
    """

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        self._listed: list[tuple[storagepool.Pool, bool]] | None = None
        self._below: tuple[str, ...] | None = None

    def volume(self, disk: Disk) -> tuple[str, storagevolume.Volume | None] | None:
        """
        Return a disk as ``POOL/VOLUME``, with its pool's description; None if it is in no pool.

        The description is None for a pool that is stopped or has vanished.
        """
        source = disk.source or {}
        pool, name = source.get("pool", ""), source.get("volume", "")
        full_name = f"{pool}/{name}" if disk.type == "volume" else None
        try:
            if full_name is not None:
                return full_name, _read_volume(volumes.lookup(self._conn, pool, name))
            if disk.type == "network":
                volume_name = self._of_network(source)
                return (volume_name, None) if volume_name else None
            return self._of_path(source.get("file") or source.get("dev") or "")
        except libvirt.libvirtError as exc:
            log.info("a disk is shown without what its pool says: %s", exc)
            return None if full_name is None else (full_name, None)

    def _of_path(self, path: str) -> tuple[str, storagevolume.Volume | None] | None:
        if not path.startswith(self._folders()):
            # libvirt will name the volume so once its pool runs.
            folder, name = posixpath.split(path)
            stopped_names = [
                pool.name
                for pool, is_active in self._pools()
                if not is_active and pool.target == folder
            ]
            return (f"{stopped_names[0]}/{name}", None) if stopped_names and folder else None
        libvirt_volume = self._conn.storageVolLookupByPath(path)
        description = _read_volume(libvirt_volume)
        return (
            f"{libvirt_volume.storagePoolLookupByVolume().name()}/{description.name}",
            description,
        )

    def _folders(self) -> tuple[str, ...]:
        """Return the folders of the running pools, each with a slash at its end."""
        if self._below is None:
            targets = [
                pool.target for pool, is_active in self._pools() if is_active and pool.target
            ]
            self._below = tuple(posixpath.join(folder, "") for folder in targets)
        return self._below

    def _of_network(self, source: dict[str, str]) -> str | None:
        """Return the volume of a Ceph or Gluster pool for a network disk's source."""
        if source.get("protocol") not in ("rbd", "gluster"):
            return None
        for pool, _is_active in self._pools():
            prefix = f"{pool.source.name}/"
            if pool.source.name and source.get("name", "").startswith(prefix):
                return f"{pool.name}/{source['name'].removeprefix(prefix)}"
        return None

    def _pools(self) -> list[tuple[storagepool.Pool, bool]]:
        if self._listed is None:
            self._listed = []
            for libvirt_pool in self._conn.listAllStoragePools(0):
                self._listed.append(
                    (
                        storagepool.read(parse(libvirt_pool.XMLDesc(0))),
                        bool(libvirt_pool.isActive()),
                    )
                )
        return self._listed


def _read_volume(volume: Any) -> storagevolume.Volume:
    return storagevolume.read(anybytes.read_volume_xml(volume))


def _servers(hosts: Iterable[dict[str, str]]) -> set[tuple[str | None, str | None]]:
    return {(server.get("name"), server.get("port")) for server in hosts}


def users(conn: Any, pool: str, volume: str) -> list[str]:
    """Return the VMs with a volume as a disk, or in a backing chain."""
    vms: list[str] = volumes.infos(conn, pool, volume).get(pool, {}).get(volume, {}).get("used_by")
    return vms or []


def path_of(conn: Any, pool: str, volume: str) -> str:
    """Return the path of a volume; empty if it is gone."""
    description = volumes.find(conn, pool, volume) if pools.find(conn, pool) is not None else None
    return description.path or "" if description is not None else ""


def find_volume_key(conn: Any, pool: str, volume: str) -> str | None:
    """
    Return a key that tells a volume from a later one of its name; None without such a key.

    LVM numbers its volumes; for most other pools, libvirt's key is the name or path.
    """
    key: str | None = value_or(None, lambda: volumes.lookup(conn, pool, volume).key(), *_GONE)
    return None if key is None or volume in key else key


def remove(conn: Any, pool: str, volume: str) -> str | None:
    """Delete a volume, if it exists; return the reason if libvirt fails, else None."""
    try:
        volumes.lookup(conn, pool, volume).delete(0)
    except libvirt.libvirtError as exc:
        return None if has_code(exc, *_GONE) else str(exc)
    return None


def refresh(conn: Any, paths: Iterable[str]) -> None:
    """
    Refresh libvirt's data on the pools that have these files as volumes.

    Files that were removed, or written without libvirt, differ from its data. A failed refresh is
    no error.
    """
    names: set[str] = set()
    for path in paths:
        with suppress(libvirt.libvirtError):
            names.add(conn.storageVolLookupByPath(path).storagePoolLookupByVolume().name())
    _refresh(conn, names)


def refresh_folders(conn: Any, paths: Iterable[str]) -> None:
    """Refresh the running pools in these files' folders, which may not know the files yet."""
    folders = {posixpath.dirname(path) for path in paths}
    named_pools = hostfacts.pools(conn).items()
    _refresh(
        conn, [name for name, pool in named_pools if pool["active"] and pool["path"] in folders]
    )


def _refresh(conn: Any, names: Iterable[str]) -> None:
    for name in sorted(names):
        try:
            conn.storagePoolLookupByName(name).refresh(0)
        except libvirt.libvirtError as exc:
            log.warning("storage pool %s was not refreshed: %s", name, exc)
