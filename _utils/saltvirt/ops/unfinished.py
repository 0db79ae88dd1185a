"""
Settle what was begun for a VM on this host by a process that died over it.

What is defined is never undone: the VM stays as it is, and the record is forgotten. Of what is not,
the noted files are removed, unless a domain uses them by now.
"""

import errno
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltvirt import content, files, locks, protocol, records
from saltvirt.config import HostSettings
from saltvirt.errors import StorageError, VirtError
from saltvirt.image import hardlinks, removal
from saltvirt.kvm import lifecycle
from saltvirt.ops import legacy, ownfiles, ownvolumes, reservations, storage, trash
from saltvirt.ops.seeding import seedfiles
from saltvirt.recordfacts import BuildFacts, PurgeFacts
from saltvirt.spec import console_log
from saltvirt.storage import door, policies, sharing, usage
from saltvirt.storage.policies import Policy
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.storage.usage import Index
from saltvirt.storage.verdict import Verdict

log = logging.getLogger(__name__)
# Why files of an interrupted build are in the trash.
_INTERRUPTED_BUILD = "interrupted virt.init"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """How files of an interrupted command go: by which policy, and into which trash."""

    policy: Policy
    drop: Callable[[Verdict], None]


def settle(conn: Any, settings: HostSettings) -> None:
    """Settle the builds and purges of this host whose process died; those that live go on."""
    if reservations.find_unfinished(settings):
        with reservations.host_lock(settings):
            for name in reservations.find_unfinished(settings):
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
    record_folders = [reservations.folder(settings) / purpose for purpose in purposes]
    # And of those who died as they reserved room, started a VM, handed it over, began an order.
    return [*record_folders, *(Path(settings.state_dir) / name for name in ("", "locks", "orders"))]


def _settle_all_of(conn: Any, settings: HostSettings, name: str) -> None:
    try:
        settle_one(conn, settings, name)
    except (VirtError, OSError) as exc:
        # It is named in host_info, and its name stays taken; other VMs have nothing to do with it.
        log.error("what was begun for VM %s cannot be settled: %s", name, exc)


def settle_one(conn: Any, settings: HostSettings, name: str) -> bool:
    """Settle what was begun for a VM, under the host's lock; return whether anything was."""
    records_folder = reservations.folder(settings)
    is_any_settled = False
    for purpose, settle_record in (("build", _settle_build), ("purge", _settle_purge)):
        if records.read_record(records_folder, purpose, name) is None:
            continue
        with records.hold_record(records_folder, purpose, name) as locked_record:
            if locked_record is not None and locked_record.record is not None:
                is_any_settled = True
                # What libvirt has defined or undefined, its files must not be removed or forgotten
                # if a crash could take that back.
                storage.settle_definitions()
                settle_record(conn, settings, locked_record)
                reservations.end(settings, locked_record)
    return _settle_claim(conn, settings, name) or is_any_settled


def _settle_build(conn: Any, settings: HostSettings, locked_record: records.LockedRecord) -> None:
    record, facts = locked_record.now, locked_record.now.read(BuildFacts)
    # They hold keys; whoever was to read them is gone, or has.
    for path in facts.secrets or ():
        files.unlink(path)
    is_defined = lifecycle.name_of(conn, facts.uuid) is not None
    if protocol.settle_build(record.phase, is_defined=is_defined) == protocol.FORGET:
        log.warning("VM %s is here; its virt.init was interrupted at its end", record.name)
        return
    made_paths = ownfiles.filter_made(record, facts.paths)
    ownfiles.take_off_record(locked_record, made_paths)
    # The record says that this build made them, and that it was given up.
    days = trash.settled_days(settings)
    with trash.fill_trash(settings, record.name, reason=_INTERRUPTED_BUILD, days=days) as drop:
        removal_ = Removal(policy=policies.UNDO, drop=drop)
        _clear(conn, settings, record.name, made_paths, record.phase != protocol.MAKING, removal_)
    ownfiles.forget(record, facts.paths)
    ownvolumes.settle_made(conn, settings, record.name, facts.volumes or [])


def _settle_purge(conn: Any, settings: HostSettings, locked_record: records.LockedRecord) -> None:
    record, facts = locked_record.now, locked_record.now.read(PurgeFacts)
    if lifecycle.name_of(conn, facts.uuid):
        log.warning("VM %s is here; its virt.purge was interrupted at its beginning", record.name)
        return
    if facts.untouched is None:
        log.warning("%s", _leftovers_message(record.name, facts))
        return
    old_signatures, current_signatures = facts.untouched, signatures(facts.paths)
    paths = [
        path
        for path in current_signatures
        if _is_its_own(settings, path, old_signatures.get(path), current_signatures[path])
    ]
    with fill_purge_trash(settings, record.name, facts) as drop:
        # What other hosts answered before the purge does not hold any more: a VM of theirs may need
        # a file by now. So the files that they see go into the trash.
        removal_ = Removal(policy=policies.DELETE, drop=drop)
        _clear(conn, settings, record.name, paths, True, removal_)
        if not drop.stays(facts.volumes or []):
            ownvolumes.remove(conn, settings, facts.volumes or [], is_late=True)


def leftovers_of_purge_message(settings: HostSettings, name: str) -> str | None:
    """Return what is said if a VM is gone though its purge, on record, was cut off before that."""
    record = records.read_record(reservations.folder(settings), "purge", name)
    facts = None if record is None else record.read(PurgeFacts)
    return None if facts is None or facts.untouched is not None else _leftovers_message(name, facts)


def _leftovers_message(name: str, facts: PurgeFacts) -> str:
    """Name the files of a VM that the purge did not undefine: an operator did, or it has moved."""
    volumes = ["/".join(volume[:2]) for volume in facts.volumes or []]
    return (
        f"VM {name} is gone, and not by its virt.purge, which was interrupted at its beginning; "
        f"these stay: {', '.join([*facts.paths, *volumes])}; if nothing needs them: virt.trash_put "
        "for each file, virt.volume_delete for each volume"
    )


def fill_purge_trash(
    settings: HostSettings, name: str, facts: PurgeFacts
) -> AbstractContextManager[trash.TrashFiller]:
    """Return what removes the files of a VM that is purged: into the trash, if there is one."""
    return trash.fill_trash(
        settings, name, reason="virt.purge", uuid=facts.uuid, definition=facts.definition
    )


def signatures(paths: Iterable[str]) -> dict[str, list[int]]:
    """Return the signatures of those files that are there."""
    return {path: content.signature(path) for path in paths if os.path.exists(path)}


def _is_its_own(
    settings: HostSettings, path: str, old_signature: list[int] | None, current_signature: list[int]
) -> bool:
    """Return whether a file is still that of the VM whose purge was interrupted."""
    if old_signature is None or sharing.is_shared(settings, path):
        # Meanwhile another host may have made, or used, a file of that name.
        return old_signature == current_signature
    # And an operator one of this host's. A crash makes it older.
    return old_signature[0] == current_signature[0] and current_signature[-1] <= old_signature[-1]


def _settle_claim(conn: Any, settings: HostSettings, name: str) -> bool:
    """Settle the claim of a builder of an older version."""
    claim = legacy.read_stale_claims(settings).get(name)
    if claim is None or "until" in claim:
        return False
    if "is_broken" in claim:
        log.warning("the reservation of VM %s cannot be read; look for files of it", name)
    if not lifecycle.is_defined(conn, name):
        days = trash.settled_days(settings)
        with trash.fill_trash(settings, name, reason=_INTERRUPTED_BUILD, days=days) as drop:
            removal_ = Removal(policy=policies.UNDO, drop=drop)
            _clear(conn, settings, name, claim["paths"], claim["defines"], removal_)
    reservations.note_end(settings)
    files.unlink(legacy.claim_path(settings, name))
    return True


def _clear(
    conn: Any,
    settings: HostSettings,
    name: str,
    paths: list[str],
    has_log: bool,
    removal_: Removal,
) -> None:
    log.warning("removing what an interrupted command left of VM %s: %s", name, paths)
    index = index_without(conn, settings, name, paths)
    remove(settings, index, removal_.policy, paths, removal_.drop)
    if has_log and not lifecycle.is_defined(conn, name):
        remove_log(name)


def remove(
    settings: HostSettings,
    index: Index,
    policy: Policy,
    paths: Iterable[str],
    drop: Callable[[Verdict], None] | None = None,
) -> list[str]:
    """
    Remove files of a VM, except those that anything needs, here or on another host.

    index
        The references of this host.
    policy
        Which of them count.
    drop
        Removes one file. Defaults to removing it for good.

    Returns the files that were removed. Raises StorageError if one cannot be removed; the others
    are removed all the same.
    """
    removed_paths, failures, paths = [], [], list(paths)
    for path in paths:
        verdict = index.verdict(policy if _may_be_needed(path) else policies.UNDO, path)
        reason = "it is a device" if storage.is_device(path) else _use_reason(verdict)
        if reason is not None:
            log.warning("%s stays: %s", path, reason)
            continue
        if Path(path).is_symlink():
            # What else the file behind a link is for is unknown.
            log.warning("%s is a link; what it leads to stays: %s", path, os.path.realpath(path))
        try:
            (drop or door.remove)(verdict)
            removed_paths.append(path)
        except (OSError, StorageError) as exc:
            failures.append(f"{path} ({_error_text(exc)})")
    for folder in {Path(path).parent for path in paths}:
        if folder.is_dir():
            files.sync_folder(folder)
    if failures:
        raise StorageError(f"these files cannot be removed: {', '.join(failures)}")
    return removed_paths


def index_without(
    conn: Any,
    settings: HostSettings,
    name: str,
    paths: Sequence[str],
    elsewhere: OtherHostsUsage | None = None,
) -> Index:
    """
    Return the index of this host for files of a VM that is gone.

    A VM of that name that is defined by now is another one, and its references count.
    """
    but = [] if lifecycle.is_defined(conn, name) else [name]
    return usage.index(
        conn, settings, but=but, skip_records_of=[name], going=paths, other_hosts=elsewhere
    )


def _may_be_needed(path: str) -> bool:
    """Return whether a file can be what others are based on, or what a link leads to."""
    return not (seedfiles.is_seed(path) or Path(path).is_symlink())


def _use_reason(verdict: Verdict) -> str | None:
    """Return why a file stays; doubts alone do not keep it, as it goes into the trash then."""
    return verdict.used_by[0].reason if verdict.used_by else None


def _error_text(error: OSError | StorageError) -> object:
    return error.strerror if isinstance(error, OSError) else error


def remove_log(name: str) -> None:
    """Remove a VM's console log and those virtlogd rotated away."""
    path = Path(console_log(name))
    if path.parent.is_dir():
        for log_path in (path, *(path.with_name(f"{path.name}.{number}") for number in range(10))):
            try:
                log_path.unlink(missing_ok=True)
            except OSError as exc:
                # A VM's own name may be as long as a file's: then there is no such log.
                if exc.errno != errno.ENAMETOOLONG:
                    raise StorageError(f"cannot remove {log_path}: {exc.strerror}") from exc
