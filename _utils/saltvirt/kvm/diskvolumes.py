"""Which volume of a pool a disk of a VM is, how that is shown, and its end."""

import logging
import posixpath
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from saltvirt.errors import StorageError
from saltvirt.kvm import anybytes, host, pools, volumes
from saltvirt.kvm.connect import libvirt
from saltvirt.xml import parse
from saltvirt.xml import pool as pool_
from saltvirt.xml import volume as volume_
from saltvirt.xml.disk import Disk

log = logging.getLogger(__name__)
# libvirt cannot delete a volume there.
_FIXED = ("iscsi", "iscsi-direct", "mpath", "scsi")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A volume; ``path`` is its file, None if libvirt alone can remove it."""

    pool: str
    volume: str
    path: str | None
    can_go: bool = True


def find(conn: Any, disk: volume_.DiskPlace) -> Found | None:
    """
    Return the volume that a disk is, None if it is in no pool of this host.

    Raises StorageError if its pool does not run, as nobody knows then what is there.
    """
    if disk.type == "volume":
        where = disk.source.get("pool", ""), disk.source.get("volume", "")
    elif disk.type == "block":
        where = _by_path(conn, disk.source.get("dev", ""))
    else:
        where = _by_network(conn, disk)
    pool = pools.find(conn, where[0]) if all(where) else None
    # What is no name of a volume would lead elsewhere.
    if pool is None or "/" in where[1] or where[1] in (".", ".."):
        return None
    if not pool.isActive():
        raise StorageError(
            f"disk {where[1]!r} is in storage pool {where[0]!r}, which does not run, so nothing is "
            f"removed; virt.pool_start {where[0]} first"
        )
    root = pools.definition(pool)
    return Found(
        pool=where[0],
        volume=where[1],
        path=pool_.volume_path(root, where[1]),
        can_go=pool_.read(root).type not in _FIXED,
    )


def _by_path(conn: Any, path: str) -> tuple[str, str]:
    try:
        found = conn.storageVolLookupByPath(path)
        return found.storagePoolLookupByVolume().name(), found.name()
    except libvirt.libvirtError as exc:
        if exc.get_error_code() == libvirt.VIR_ERR_NO_STORAGE_VOL:
            return "", ""
        raise


def _by_network(conn: Any, disk: volume_.DiskPlace) -> tuple[str, str]:
    """Return the pool and the volume of a disk that 3006 made of a pool, of the same servers."""
    source, _, volume = disk.source.get("name", "").partition("/")
    for pool in conn.listAllStoragePools(0):
        says = pool_.read(pools.definition(pool))
        is_it = (says.type, says.source.name) == (disk.source.get("protocol"), source)
        if is_it and _servers(says.source.hosts) == _servers(disk.hosts):
            return pool.name(), volume
    return "", ""


class Pools:
    """
    The pools that disks of many VMs may be in.

    They are listed once, and only for a disk that may be in one; a volume is asked for only if a
    disk lies below the folder of a pool that runs.
    """

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        self._listed: list[tuple[pool_.Pool, bool]] | None = None
        self._below: tuple[str, ...] | None = None

    def volume(self, disk: Disk) -> tuple[str, volume_.Volume | None] | None:
        """
        Return a disk as ``POOL/VOLUME``, and what its pool says of it; None if it is in no pool.

        A pool that does not run, and one that is gone by now, say nothing.
        """
        source = disk.source or {}
        pool, name = source.get("pool", ""), source.get("volume", "")
        where = f"{pool}/{name}" if disk.type == "volume" else None
        try:
            if where is not None:
                return where, _said(volumes.lookup(self._conn, pool, name))
            if disk.type == "network":
                found = self._of_network(source)
                return (found, None) if found else None
            return self._of_path(source.get("file") or source.get("dev") or "")
        except libvirt.libvirtError as exc:
            log.info("a disk is shown without what its pool says: %s", exc)
            return None if where is None else (where, None)

    def _of_path(self, path: str) -> tuple[str, volume_.Volume | None] | None:
        if not path.startswith(self._folders()):
            # What libvirt will call a volume as soon as its pool runs.
            folder, name = posixpath.split(path)
            stopped = [one.name for one, runs in self._pools() if not runs and one.target == folder]
            return (f"{stopped[0]}/{name}", None) if stopped and folder else None
        found = self._conn.storageVolLookupByPath(path)
        says = _said(found)
        return f"{found.storagePoolLookupByVolume().name()}/{says.name}", says

    def _folders(self) -> tuple[str, ...]:
        """Return the folders of the pools that run, each with a slash at its end."""
        if self._below is None:
            runs = [one.target for one, is_active in self._pools() if is_active and one.target]
            self._below = tuple(posixpath.join(folder, "") for folder in runs)
        return self._below

    def _of_network(self, source: dict[str, str]) -> str | None:
        """Return the volume of a Ceph or Gluster pool that a name means."""
        if source.get("protocol") not in ("rbd", "gluster"):
            return None
        for one, _runs in self._pools():
            of_it = f"{one.source.name}/"
            if one.source.name and source.get("name", "").startswith(of_it):
                return f"{one.name}/{source['name'].removeprefix(of_it)}"
        return None

    def _pools(self) -> list[tuple[pool_.Pool, bool]]:
        if self._listed is None:
            self._listed = []
            for one in self._conn.listAllStoragePools(0):
                self._listed.append((pool_.read(parse(one.XMLDesc(0))), bool(one.isActive())))
        return self._listed


def _said(volume: Any) -> volume_.Volume:
    return volume_.read(anybytes.described(volume))


def _servers(hosts: Iterable[dict[str, str]]) -> set[tuple[str | None, str | None]]:
    return {(one.get("name"), one.get("port")) for one in hosts}


def users(conn: Any, pool: str, volume: str) -> list[str]:
    """Return the VMs that have a volume as a disk, or below one."""
    found: list[str] = (
        volumes.infos(conn, pool, volume).get(pool, {}).get(volume, {}).get("used_by")
    )
    return found or []


def path_of(conn: Any, pool: str, volume: str) -> str:
    """Return where a volume is; empty if it is gone."""
    found = volumes.find(conn, pool, volume) if pools.find(conn, pool) is not None else None
    return found.path or "" if found is not None else ""


def number_of(conn: Any, pool: str, volume: str) -> str | None:
    """
    Return what tells a volume from a later one of its name, None if nothing does, or if it is gone.

    LVM numbers its volumes; most others have their name or path as libvirt's key.
    """
    try:
        key: str = volumes.lookup(conn, pool, volume).key()
    except libvirt.libvirtError as exc:
        if _is_gone(exc):
            return None
        raise
    return None if volume in key else key


def remove(conn: Any, pool: str, volume: str) -> str | None:
    """Delete a volume, if it is there; return why it could not be deleted, None if it was."""
    try:
        volumes.lookup(conn, pool, volume).delete(0)
    except libvirt.libvirtError as exc:
        return None if _is_gone(exc) else str(exc)
    return None


def _is_gone(exc: Any) -> bool:
    gone = (libvirt.VIR_ERR_NO_STORAGE_VOL, libvirt.VIR_ERR_NO_STORAGE_POOL)
    return exc.get_error_code() in gone


def refresh(conn: Any, paths: Iterable[str]) -> None:
    """
    Let libvirt look again at the files that it knows as volumes of pools.

    Those that are gone, or were written to by others, are not what it has noted. That it does not
    look is no failure.
    """
    names: set[str] = set()
    for path in paths:
        with suppress(libvirt.libvirtError):
            names.add(conn.storageVolLookupByPath(path).storagePoolLookupByVolume().name())
    _refresh(conn, names)


def refresh_folders(conn: Any, paths: Iterable[str]) -> None:
    """Let the pools that run look again in whose folders files are, which they may not know yet."""
    folders = {posixpath.dirname(path) for path in paths}
    known = host.pools(conn).items()
    _refresh(conn, [name for name, it in known if it["active"] and it["path"] in folders])


def _refresh(conn: Any, names: Iterable[str]) -> None:
    for name in sorted(names):
        try:
            conn.storagePoolLookupByName(name).refresh(0)
        except libvirt.libvirtError as exc:
            log.warning("storage pool %s was not refreshed: %s", name, exc)
