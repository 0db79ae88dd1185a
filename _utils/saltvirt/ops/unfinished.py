"""
Settle what was begun for a VM on this host by a process that died over it.

What is defined is never undone: the VM stays as it is, and the record is forgotten. Of what is not,
the noted files are removed, unless a domain uses them by now.
"""

import errno
import logging
import os
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from saltvirt import content, files, locks, protocol, records
from saltvirt.config import HostSettings
from saltvirt.errors import StorageError, VirtError
from saltvirt.image import hardlinks, removal
from saltvirt.kvm import lifecycle
from saltvirt.ops import (
    legacy,
    ownfiles,
    ownvolumes,
    reservations,
    snapshotted,
    storage,
    trash,
    trashbases,
)
from saltvirt.recordfacts import BuildFacts, PurgeFacts
from saltvirt.spec import console_log

log = logging.getLogger(__name__)


def settle(conn: Any, settings: HostSettings) -> None:
    """Settle the builds and purges of this host whose process died; those that live go on."""
    if reservations.unfinished(settings):
        with reservations.host_lock(settings):
            for name in reservations.unfinished(settings):
                _settle_all_of(conn, settings, name)
    sweep_locks(settings)
    removal.sweep(settings)
    hardlinks.separate(settings)
    trash.sweep(settings)


def sweep_locks(settings: HostSettings) -> None:
    """Remove the locks of those who died between the end of their record and their own."""
    for folder in lock_folders(settings):
        locks.sweep(folder)


def lock_folders(settings: HostSettings) -> list[Path]:
    """Return the folders in which there are locks."""
    purposes = ("build", "purge", "departure", "arrival", "cancelled", trash.PURPOSE)
    of_records = [reservations.folder(settings) / purpose for purpose in purposes]
    # And of those who died as they reserved room, started a VM, handed it over, began an order.
    return [*of_records, *(Path(settings.state_dir) / one for one in ("", "locks", "orders"))]


def _settle_all_of(conn: Any, settings: HostSettings, name: str) -> None:
    try:
        settle_one(conn, settings, name)
    except (VirtError, OSError) as exc:
        # It is named in host_info, and its name stays taken; other VMs have nothing to do with it.
        log.error("what was begun for VM %s cannot be settled: %s", name, exc)


def settle_one(conn: Any, settings: HostSettings, name: str) -> bool:
    """Settle what was begun for a VM, under the host's lock; return whether anything was."""
    place = reservations.folder(settings)
    any_of_it = False
    for purpose, settle_record in (("build", _settle_build), ("purge", _settle_purge)):
        if records.look(place, purpose, name) is None:
            continue
        with records.held(place, purpose, name) as held:
            if held is not None and held.record is not None:
                any_of_it = True
                # What libvirt has defined or undefined, its files must not be removed or forgotten
                # if a crash could take that back.
                storage.settle_definitions()
                settle_record(conn, settings, held)
                reservations.end(settings, held)
    return _settle_claim(conn, settings, name) or any_of_it


def _settle_build(conn: Any, settings: HostSettings, held: records.Held) -> None:
    record, facts = held.now, held.now.read(BuildFacts)
    # They hold keys; whoever was to read them is gone, or has.
    for path in facts.secrets or ():
        files.unlink(path)
    is_defined = lifecycle.name_of(conn, facts.uuid) is not None
    if protocol.settle_build(record.phase, is_defined=is_defined) == protocol.FORGET:
        log.warning("VM %s is here; its virt.init was interrupted at its end", record.name)
        return
    mine = ownfiles.made(record, facts.paths)
    ownfiles.leave(held, mine)
    _clear(conn, settings, record.name, mine, record.phase != protocol.MAKING)
    ownfiles.forget(record, facts.paths)
    ownvolumes.settle_made(conn, settings, facts.volumes or [])


def _settle_purge(conn: Any, settings: HostSettings, held: records.Held) -> None:
    record, facts = held.now, held.now.read(PurgeFacts)
    if lifecycle.name_of(conn, facts.uuid):
        log.warning("VM %s is here; its virt.purge was interrupted at its beginning", record.name)
        return
    paths, was = facts.paths, facts.untouched
    if was is not None:
        now = signatures(paths)
        paths = [one for one in paths if _is_its_own(settings, one, was.get(one), now.get(one))]
    with purged(settings, record.name, facts) as drop:
        _clear(conn, settings, record.name, paths, True, drop)
        if not drop.stays(facts.volumes or []):
            ownvolumes.remove(conn, settings, facts.volumes or [], is_late=True)


def purged(
    settings: HostSettings, name: str, facts: PurgeFacts
) -> AbstractContextManager[trash.Filling]:
    """Return what removes the files of a VM that is purged: into the trash, if there is one."""
    return trash.filling(
        settings, name, why="virt.purge", uuid=facts.uuid, definition=facts.definition
    )


def signatures(paths: Iterable[str]) -> dict[str, list[int]]:
    """Return the signatures of those files that are there."""
    return {path: content.signature(path) for path in paths if os.path.exists(path)}


def _is_its_own(
    settings: HostSettings, path: str, was: list[int] | None, now: list[int] | None
) -> bool:
    """Return whether a file is still that of the VM whose purge was interrupted."""
    if storage.is_declared(settings, path):
        # Meanwhile another host may have made, or used, a file of that name.
        return was == now
    # And an operator one of this host's. Older releases noted none; a crash makes it older.
    return was is None or now is None or (was[0] == now[0] and now[-1] <= was[-1])


def _settle_claim(conn: Any, settings: HostSettings, name: str) -> bool:
    """Settle the claim of a builder of an older version."""
    claim = legacy.stale(settings).get(name)
    if claim is None or "until" in claim:
        return False
    if "is_broken" in claim:
        log.warning("the reservation of VM %s cannot be read; look for files of it", name)
    if not lifecycle.is_defined(conn, name):
        _clear(conn, settings, name, claim["paths"], claim["defines"])
    reservations.note_end(settings)
    files.unlink(legacy.path_of(settings, name))
    return True


def _clear(
    conn: Any,
    settings: HostSettings,
    name: str,
    paths: list[str],
    has_log: bool,
    drop: Callable[[str], None] | None = None,
) -> None:
    log.warning("removing what an interrupted command left of VM %s: %s", name, paths)
    remove(conn, settings, name, paths, drop)
    if has_log and not lifecycle.is_defined(conn, name):
        remove_log(name)


def remove(
    conn: Any,
    settings: HostSettings,
    name: str,
    paths: list[str],
    drop: Callable[[str], None] | None = None,
) -> list[str]:
    """
    Remove files of a VM, but cached images and those in use, here or by another host.

    What is being made for another VM is in use too, as no domain says so yet, and what a disk in
    the trash is based on, or an external snapshot of another VM. Returns those removed.

    drop
        Removes one of them. Defaults to removing it for good.

    Raises StorageError if one cannot be removed; the others are.
    """
    used = _used(conn, settings, name, {Path(path).parent for path in paths})
    removed, failed = [], []
    for path in paths:
        why = _why_kept(settings, path, used)
        if why is not None:
            log.warning("%s stays: %s", path, why)
            continue
        if Path(path).is_symlink():
            # Nobody here knows what else it is for.
            log.warning("%s is a link; what it leads to stays: %s", path, os.path.realpath(path))
        try:
            (drop or storage.remove)(path)
            removed.append(path)
        except (OSError, StorageError) as exc:
            failed.append(f"{path} ({_why(exc)})")
    for folder in {Path(path).parent for path in paths}:
        if folder.is_dir():
            files.sync_folder(folder)
    if failed:
        raise StorageError(f"these files cannot be removed: {', '.join(failed)}")
    return removed


def _used(conn: Any, settings: HostSettings, name: str, folders: Collection[Path]) -> set[str]:
    """Return the files that are in use by others than a VM that goes."""
    # Before the domains: what is on record no more is defined by then.
    coming = reservations.coming_files(settings, name)
    used = {*coming, *map(os.path.realpath, coming), *trashbases.below(settings)}
    used |= storage.in_use(conn) | trashbases.beside(folders)
    return used | snapshotted.needed(conn, externally=True, but=name).keys()


def _why_kept(settings: HostSettings, path: str, used: set[str]) -> str | None:
    """Return why a file is not removed, None if it is."""
    if storage.is_shared(settings, path, used):
        return "it is a cached image, or a VM uses it, or is to have it, or has a snapshot of it"
    if storage.is_declared(settings, path) and storage.is_open(path):
        # No failure: what is tried again is removed when the VM of that host is stopped.
        return "all hosts share it, and another one has it open"
    return "it is a device" if storage.is_device(path) else None


def _why(error: OSError | StorageError) -> object:
    return error.strerror if isinstance(error, OSError) else error


def remove_log(name: str) -> None:
    """Remove a VM's console log and those virtlogd rotated away."""
    path = Path(console_log(name))
    if path.parent.is_dir():
        for one in (path, *(path.with_name(f"{path.name}.{number}") for number in range(10))):
            try:
                one.unlink(missing_ok=True)
            except OSError as exc:
                # A VM's own name may be as long as a file's: then there is no such log.
                if exc.errno != errno.ENAMETOOLONG:
                    raise StorageError(f"cannot remove {one}: {exc.strerror}") from exc
