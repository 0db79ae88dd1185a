"""Which volumes of storage pools belong to a VM alone, and their removal with it."""

import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saltvirt import config
from saltvirt.config import HostSettings
from saltvirt.errors import StorageError
from saltvirt.image import cache, tool
from saltvirt.kvm import diskvolumes, lifecycle, pools
from saltvirt.kvm import volumes as volumes_
from saltvirt.ops import outofreach, reservations, snapshotted, storage, trash, trashbases
from saltvirt.xml import parse, volume

log = logging.getLogger(__name__)
# What is below a volume that must not go, and what to do.
_DISK = "a disk of VM {!r} is based on it; purge that VM (virt.purge), or detach the disk first"
_SNAPSHOT = "a snapshot of VM {!r} needs it; delete that (virt.delete_snapshots) first"
_TRASHED = f"a disk in the trash (entry {{}}) is based on it; {trashbases.REMEDY}"
_ON_RECORD = "a disk is based on it, one {}"
_COMING = (
    "of VM {0!r}, which is being built here or on its way here; wait until that is over, or if it "
    "was interrupted: salt-run virt.settle {0}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """
    The volumes of a VM.

    paths
        Those that are files, which go as all files of a VM do.
    volumes
        ``[pool, volume]`` of those that only libvirt can remove, with their numbers if they have
        any.
    """

    paths: list[str] = field(default_factory=list)
    volumes: list[list[str]] = field(default_factory=list)


def of(conn: Any, settings: HostSettings, name: str, *, removables: bool) -> Own:
    """Return the volumes that belong to a VM alone; what stays is said in the log."""
    own = Own()
    for disk in volume.places(parse(lifecycle.kept_xml(conn, name))):
        if disk.device in ("cdrom", "floppy") and not removables:
            continue
        found = diskvolumes.find(conn, disk)
        if found is None:
            where = " ".join(f"{key}={value}" for key, value in sorted(disk.source.items()))
            log.warning("disk %s of VM %s stays: it is in no pool of this host", where, name)
        elif found.path is not None:
            _add_file(conn, settings, name, disk, found, own)
        else:
            _add_volume(conn, settings, name, disk, found, own)
    return own


def _add_file(
    conn: Any,
    settings: HostSettings,
    name: str,
    disk: volume.DiskPlace,
    found: diskvolumes.Found,
    own: Own,
) -> None:
    path = found.path or ""
    is_only_read = disk.is_readonly or disk.device in ("cdrom", "floppy")
    is_others = storage.is_shared(settings, path, storage.in_use(conn, but=name))
    # What a VM only reads there may be read by VMs of all hosts.
    if is_others or (is_only_read and storage.is_declared(settings, path)):
        log.warning("volume %s/%s stays: other VMs use it", found.pool, found.volume)
        return
    own.paths.append(path)


def _add_volume(
    conn: Any,
    settings: HostSettings,
    name: str,
    disk: volume.DiskPlace,
    found: diskvolumes.Found,
    own: Own,
) -> None:
    where = f"{found.pool}/{found.volume}"
    if is_used(conn, settings, found.pool, found.volume, but=name):
        log.warning("volume %s stays: other VMs use it, or disks in the trash", where)
    elif disk.is_readonly:
        log.warning("volume %s stays: VM %s only reads it, and others may", where, name)
    elif not found.can_go:
        log.warning("volume %s stays: libvirt cannot delete volumes of such a pool", where)
    else:
        number = diskvolumes.number_of(conn, found.pool, found.volume)
        own.volumes.append([found.pool, found.volume, *([number] if number else [])])


def is_used(
    conn: Any, settings: HostSettings, pool: str, name: str, but: str | None = None
) -> bool:
    """
    Return whether a VM, but one, has a volume as a disk or below one, by whichever name.

    A disk in the trash counts as those of VMs do: it may be brought back. So does what an
    external snapshot goes back to.
    """
    if [one for one in diskvolumes.users(conn, pool, name) if one != but]:
        return True
    path = diskvolumes.path_of(conn, pool, name)
    taken = snapshotted.needed(conn, externally=True, but=but)
    if any(storage.known_as(one, taken) for one in (f"{pool}/{name}", path) if one):
        return True
    is_trashs = (
        path.startswith("/") and storage.known_as(path, trashbases.below(settings)) is not None
    )
    return is_trashs or _is_shared(conn, settings, path, but)


def _is_shared(conn: Any, settings: HostSettings, path: str, but: str | None = None) -> bool:
    """Return whether what lies at a path is a cached image, or a VM, but one, is based on it."""
    # A device has several names.
    return path.startswith("/") and storage.is_shared(settings, path, storage.in_use(conn, but=but))


def alone(conn: Any, pool: str, name: str) -> AbstractContextManager[None]:
    """Have a volume that is to be written over, so that no VM starts with it in the block."""
    return storage.kept_from_qemu(diskvolumes.path_of(conn, pool, name))


def none_begun(settings: HostSettings) -> AbstractContextManager[None]:
    """Have no build or arrival begun here, which may take volumes that are there, in the block."""
    return reservations.host_lock(settings)


def refuse_open(conn: Any, settings: HostSettings, pool: str, names: Iterable[str]) -> None:
    """
    Raise StorageError if a volume is in use, though no VM that runs here has it.

    A QEMU may have it open, as that of another host may which shares it, or it may be made for a VM
    that is not here yet. It is not kept from QEMU: a logical volume that anybody has open cannot be
    removed.
    """
    for name in names:
        path = diskvolumes.path_of(conn, pool, name)
        reservations.refuse_coming(settings, [path, f"{pool}/{name}"])
        if path.startswith("/") and storage.is_open(path):
            raise tool.open_elsewhere(path)
        if Path(path).name == trash.FOLDER:
            trash.refuse_noted(settings, Path(path).parent)


def refuse_deletion(
    conn: Any, settings: HostSettings, pool: str, names: Sequence[str], but: Collection[str] = ()
) -> None:
    """
    Raise StorageError if a volume is in use elsewhere, or anything here is based on it.

    What is based on it would be spoilt as well if it was written over.

    but
        VMs of which nobody needs to know what they are based on, beside those whose disks these
        volumes are. Defaults to none.
    """
    refuse_open(conn, settings, pool, names)
    _refuse_needed(conn, settings, pool, names, {*but, *_users(conn, pool, names)})


def refuse_group(conn: Any, settings: HostSettings, pool: str) -> None:
    """
    Raise StorageError if a pool would go with all its volumes, and one of them is wanted.

    A VM has it, or is to have it, or needs it; or nobody can tell. It is called under the host's
    lock.
    """
    group = volumes_.group(conn, pool)
    if group is None:
        return
    volumes_.refuse_group_of_vms(conn, group)
    known = _of_snapshots(conn)
    if config.is_local(settings.uri):
        where = f"what is in pool {pool!r}"
        trashbases.refuse_unknown(settings, where)
        known |= _known_here(conn, settings, where, ())
        coming = reservations.coming_files(settings, "").items()
        known |= {path: f"it is to be a disk {_COMING.format(vm)}" for path, vm in coming}
        below = trashbases.below(settings).items()
        known |= {path: _TRASHED.format(entry) for path, entry in below}
    for place in volumes_.in_group(conn, group, sorted(known)):
        raise StorageError(f"pool {pool!r} stays, as {place} would go with it: {known[place]}")


def _users(conn: Any, pool: str, names: Sequence[str] | None = None) -> set[str]:
    """
    Return the VMs that have one of some volumes, by default of all in the pool.

    Their disks may go one by one: nobody needs what is below one that is gone already.
    """
    known = volumes_.infos(conn, pool).get(pool, {})
    chosen = (one for name, one in known.items() if names is None or name in names)
    return {vm for one in chosen for vm in one["used_by"]}


def refuse_resize(conn: Any, settings: HostSettings, pool: str, name: str, is_cut: bool) -> None:
    """Raise StorageError if a volume is in use elsewhere, or what is cut off is below a disk."""
    refuse = refuse_deletion if is_cut else refuse_open
    refuse(conn, settings, pool, [name])


def deleting(
    conn: Any, settings: HostSettings, pool: str
) -> Callable[[Sequence[str]], AbstractContextManager[None]]:
    """
    Return what holds the host's lock over the deletion of a few volumes of a pool that goes.

    All is looked at again under it: whoever waited for it may have taken one of them.
    """
    users = _users(conn, pool)

    @contextmanager
    def alone(names: Sequence[str]) -> Iterator[None]:
        with none_begun(settings):
            for name in names:
                volumes_.refuse_running(conn, pool, name)
            refuse_deletion(conn, settings, pool, names, but=users)
            yield

    return alone


def _refuse_needed(
    conn: Any, settings: HostSettings, pool: str, names: Sequence[str], but: Collection[str]
) -> None:
    """
    Raise StorageError if a VM, running or not, or the trash has a disk above a volume.

    It is called under the host's lock. A disk that is itself the volume does not count. Of another
    machine's libvirt only what its snapshots and pools say is known here.
    """
    if not names:
        return
    is_here = config.is_local(settings.uri)
    known = _known_here(conn, settings, f"volume {pool}/{names[0]}", but) if is_here else {}
    known |= _of_snapshots(conn)
    known |= _known_to_pools(conn)
    paths = {name: diskvolumes.path_of(conn, pool, name) for name in names}
    for name, path in paths.items():
        _refuse_known(f"{pool}/{name}", path, known)
    files = [path for path in paths.values() if path.startswith("/")]
    if files and is_here:
        trashbases.refuse_needed(settings, files)


def _known_here(
    conn: Any, settings: HostSettings, where: str, but: Collection[str]
) -> dict[str, str]:
    """Return ``{path: why}`` of what headers of this host's files, and its records, say."""
    # Before the domains: what is on record no more is defined by then, or in the trash.
    known = below_records(settings)
    for vm, why in outofreach.reasons(conn, settings).items():
        if vm not in but:
            raise StorageError(f"a VM may be based on {where}, so it stays: {why}")
    return known | {path: _DISK.format(vm) for path, vm in storage.based(conn).items()}


def _of_snapshots(conn: Any) -> dict[str, str]:
    return {path: _SNAPSHOT.format(vm) for path, vm in snapshotted.needed(conn).items()}


def _known_to_pools(conn: Any) -> dict[str, str]:
    """Return ``{POOL/VOLUME: why}`` of what pools say is below disks: a server's has no header."""
    return {
        "/".join(where): _DISK.format(min(vms))
        for where, vms in volumes_.based(conn).items()
        if vms
    }


def _refuse_known(where: str, path: str, known: Mapping[str, str]) -> None:
    for one in filter(None, (where, path)):
        found = storage.known_as(one, known)
        if found is not None:
            raise StorageError(f"volume {where} stays: {known[found]}")


def below_records(settings: HostSettings) -> dict[str, str]:
    """Return ``{path: why}`` of what is below disks of VMs that are made here, or go."""
    whose = reservations.going_files(settings)
    coming = reservations.coming_files(settings, "").items()
    whose |= {path: _COMING.format(vm) for path, vm in coming}
    out: dict[str, str] = {}
    for path, said in whose.items():
        for one in [*storage.chain(path)][1:] if path.startswith("/") else ():
            out |= dict.fromkeys((one, os.path.realpath(one)), _ON_RECORD.format(said))
    return out


def refuse_used(conn: Any, settings: HostSettings, pool: str, name: str) -> None:
    """
    Raise StorageError if a VM has a volume as a disk, running or not, or below one, or is to.

    What lies below a disk outside all pools is seen too; a cached image is every VM's.
    """
    where = f"{pool}/{name}"
    for why in outofreach.reasons(conn, settings).values():
        raise StorageError(f"volume {where} may be a VM's: {why}; nothing is overwritten")
    # Before the domains: what is on record no more is defined by then.
    path = diskvolumes.path_of(conn, pool, name)
    reservations.refuse_on_record(settings, "", [path, where])
    found = diskvolumes.users(conn, pool, name)
    if found:
        raise StorageError(
            f"volume {where} is in use by {', '.join(found)}; nothing is overwritten"
        )
    if _is_shared(conn, settings, path) or cache.is_kept_in(settings, path):
        raise StorageError(
            f"volume {where} is a cached image, or a VM's disk is based on it; nothing is "
            "overwritten"
        )
    _refuse_known(where, path, _of_snapshots(conn))
    twin = storage.twin(path, storage.in_use(conn))
    if twin is not None:
        raise StorageError(
            f"volume {where} is a hard link of {twin}, which a VM uses; nothing is overwritten"
        )
    if path.startswith("/"):
        trashbases.refuse_needed(settings, [path])


def remove(
    conn: Any, settings: HostSettings, volumes: list[list[str]], *, is_late: bool = False
) -> None:
    """
    Delete volumes, but those that a VM uses by now; what is gone is gone.

    is_late
        Whoever wrote them down did not come that far: another host may have made a volume of that
        name meanwhile, where several have a pool in common. Defaults to False.

    Raises StorageError if one cannot be deleted; the others are.
    """
    failed = []
    for pool, name, *number in volumes:
        if is_late and number != [diskvolumes.number_of(conn, pool, name)]:
            log.warning(
                "volume %s/%s stays, as it may be another VM's by now; if it is there and is not: "
                "virt.volume_delete %s %s",
                *(pool, name, pool, name),
            )
            continue
        if is_used(conn, settings, pool, name):
            log.warning(
                "volume %s/%s stays: a VM uses it by now, or a disk in the trash", pool, name
            )
            continue
        why = diskvolumes.remove(conn, pool, name)
        if why is not None:
            failed.append(f"{pool}/{name} ({why})")
    if failed:
        raise StorageError(
            f"these volumes cannot be removed: {', '.join(failed)}; remove them by "
            "virt.volume_delete POOL VOLUME"
        )


def settle_made(conn: Any, settings: HostSettings, volumes: list[list[str]]) -> None:
    """
    Delete the volumes that a build has made which died.

    Raises StorageError if one is there of which nobody knows whether the build has made it: it died
    just then.
    """
    for pool, name, *number in volumes:
        found = pools.find(conn, pool)
        if found is None:
            continue
        if not found.isActive():
            raise StorageError(
                f"pool {pool!r}, which has volume {name!r} of an interrupted build, does not run; "
                f"virt.pool_start {pool} first"
            )
        if name not in volumes_.names(conn, pool):
            continue
        if not number:
            raise StorageError(
                f"volume {pool}/{name} is there, and nobody knows whether the interrupted build "
                f"has made it; see what it is, then virt.volume_delete {pool} {name}"
            )
        has_number = diskvolumes.number_of(conn, pool, name) or ""
        if number != [has_number]:
            log.warning("volume %s/%s stays: it is another one by now", pool, name)
            continue
        remove(conn, settings, [[pool, name]])
