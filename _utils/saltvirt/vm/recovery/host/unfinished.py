"""
Settle builds and purges that died on this host, and have moves of disks settled.

A defined VM is never undone: it stays as it is, and the record ends. If the VM is not defined, the
recorded files are removed, unless something needs them by now.
"""

import errno
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saltvirt.core import filecontent, files, locks
from saltvirt.core.errors import StorageError, VirtError
from saltvirt.core.journal import records
from saltvirt.core.journal.recordfacts import BuildFacts, PurgeFacts
from saltvirt.core.options.config import HostSettings
from saltvirt.core.protocol import moveprotocol
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import (
    definitionfiles,
    diskpaths,
    door,
    exclusivecreate,
    policies,
    seedfiles,
    sharing,
    trash,
    usage,
    vmvolumes,
)
from saltvirt.storage.images import removal
from saltvirt.storage.policies import Policy
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.storage.usage import Index
from saltvirt.storage.verdict import Verdict
from saltvirt.vm.diskmove.host import settling
from saltvirt.vm.spec import console_log

log = logging.getLogger(__name__)
# The reason in the trash for files of an interrupted build.
_INTERRUPTED_BUILD = "interrupted virt.init"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """How files of an interrupted command are removed: the policy, and the trash if any."""

    policy: Policy
    drop: Callable[[Verdict], None]


def settle(conn: Any, settings: HostSettings) -> None:
    """Settle the interrupted builds, purges and disk moves of this host; running ones go on."""
    if reservations.find_unfinished(settings):
        with reservations.host_lock(settings):
            for name in reservations.find_unfinished(settings):
                _settle_all_of(conn, settings, name)
    sweep_locks(settings)
    removal.sweep(settings)
    trash.sweep(settings)


def sweep_locks(settings: HostSettings) -> None:
    """Remove the locks of jobs that died after the end of their record."""
    for folder in lock_folders(settings):
        locks.sweep(folder)


def lock_folders(settings: HostSettings) -> list[Path]:
    """Return the folders that contain locks."""
    purposes = (*reservations.SETTLED_HERE, "departure", "arrival", "cancelled", trash.PURPOSE)
    record_folders = [reservations.folder(settings) / purpose for purpose in purposes]
    # The others have the locks of reservations, starts and hand-overs of VMs, and orders.
    return [*record_folders, *(Path(settings.state_dir) / name for name in ("", "locks", "orders"))]


def _settle_all_of(conn: Any, settings: HostSettings, name: str) -> None:
    try:
        settle_one(conn, settings, name)
    except (VirtError, OSError) as exc:
        # host_info reports this VM, and its name stays taken; other VMs are settled all the same.
        log.error("what was begun for VM %s cannot be settled: %s", name, exc)


def settle_one(conn: Any, settings: HostSettings, name: str) -> bool:
    """
    Settle a VM's interrupted build or purge, and the move of a disk, under the host's lock.

    Returns whether there was any.
    """
    records_folder = reservations.folder(settings)
    is_any_settled = settling.settle_one(conn, settings, name)
    for purpose, settle_record in (("build", _settle_build), ("purge", _settle_purge)):
        if records.read_record(records_folder, purpose, name) is None:
            continue
        with records.hold_record(records_folder, purpose, name) as locked_record:
            if locked_record is not None and locked_record.record is not None:
                is_any_settled = True
                # Sync definitions first: a crash must not revert a definition after the files are
                # removed or the record is gone.
                definitionfiles.settle_definitions()
                settle_record(conn, settings, locked_record)
                reservations.end(settings, locked_record)
    return is_any_settled


def _settle_build(conn: Any, settings: HostSettings, locked_record: records.LockedRecord) -> None:
    record, facts = locked_record.now, locked_record.now.read(BuildFacts)
    # The secrets hold keys, and their reader has read them or is gone.
    for path in facts.secrets or ():
        files.unlink(path)
    is_defined = lifecycle.name_of(conn, facts.uuid) is not None
    if moveprotocol.settle_build(record.phase, is_defined=is_defined) == moveprotocol.FORGET:
        log.warning("VM %s is here; its virt.init was interrupted at its end", record.name)
        return
    made_paths = exclusivecreate.filter_made(record, facts.paths)
    exclusivecreate.take_off_record(locked_record, made_paths)
    # The policy is UNDO, as the record proves that the build made these files and was given up.
    days = trash.settled_days(settings)
    with trash.fill_trash(settings, record.name, reason=_INTERRUPTED_BUILD, days=days) as drop:
        removal_ = Removal(policy=policies.UNDO, drop=drop)
        _clear(
            conn, settings, record.name, made_paths, record.phase != moveprotocol.MAKING, removal_
        )
    exclusivecreate.forget(record, facts.paths)
    vmvolumes.settle_made(conn, settings, record.name, facts.volumes or [])


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
        # Other hosts' answers from before the purge are stale: a VM there may need a file by now.
        # So the files that other hosts see go into the trash.
        removal_ = Removal(policy=policies.DELETE, drop=drop)
        _clear(conn, settings, record.name, paths, True, removal_)
        if not drop.stays(facts.volumes or []):
            vmvolumes.remove(conn, settings, facts.volumes or [], is_late=True)


def leftovers_of_purge_message(settings: HostSettings, name: str) -> str | None:
    """Return the message for a VM that is gone although its purge died before removing it."""
    record = records.read_record(reservations.folder(settings), "purge", name)
    facts = None if record is None else record.read(PurgeFacts)
    return None if facts is None or facts.untouched is not None else _leftovers_message(name, facts)


def _leftovers_message(name: str, facts: PurgeFacts) -> str:
    """Return the message naming the files of a VM that an operator undefined, or that moved."""
    volumes = ["/".join(volume[:2]) for volume in facts.volumes or []]
    return (
        f"VM {name} is gone, and not by its virt.purge, which was interrupted at its beginning; "
        f"these stay: {', '.join([*facts.paths, *volumes])}; if nothing needs them: virt.trash_put "
        "for each file, virt.volume_delete for each volume"
    )


def fill_purge_trash(
    settings: HostSettings, name: str, facts: PurgeFacts, *, is_dry: bool = False
) -> AbstractContextManager[trash.TrashFiller]:
    """Return the filler that removes a purged VM's files, into the trash if it is on."""
    return trash.fill_trash(settings, name, reason="virt.purge", purged=facts, is_dry=is_dry)


def signatures(paths: Iterable[str]) -> dict[str, list[int]]:
    """Return the signatures of the files that exist."""
    return {path: filecontent.signature(path) for path in paths if os.path.exists(path)}


def _is_its_own(
    settings: HostSettings, path: str, old_signature: list[int] | None, current_signature: list[int]
) -> bool:
    """Return whether a file is still that of the VM with the interrupted purge."""
    if old_signature is None or sharing.is_shared(settings, path):
        # Another host may have made or used a file at this path since.
        return old_signature == current_signature
    # An operator may have made another local file; a crash can only make the file older.
    return old_signature[0] == current_signature[0] and current_signature[-1] <= old_signature[-1]


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
    left: dict[str, str] | None = None,
) -> list[str]:
    """
    Remove files of a VM, except files needed here or on another host; return the removed files.

    policy
        The policy that decides which references in ``index`` count.
    drop
        Removes a single file. Defaults to removing it for good.
    left
        Gets the files that stay, each with the reason. Defaults to none.

    Raises StorageError if a file cannot be removed; the others are removed all the same.
    """
    removed_paths, failures, paths = [], [], list(paths)
    for path in paths:
        verdict = index.verdict(policy if _may_be_needed(path) else policies.UNDO, path)
        reason = "it is a device" if diskpaths.is_device(path) else _use_reason(verdict)
        if reason is not None:
            _note_left(path, reason, left)
            continue
        if Path(path).is_symlink():
            # The link's target may serve other purposes.
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


def _note_left(path: str, reason: str, left: dict[str, str] | None) -> None:
    log.warning("%s stays: %s", path, reason)
    if left is not None:
        left[path] = reason


def index_without(
    conn: Any,
    settings: HostSettings,
    name: str,
    paths: Sequence[str],
    elsewhere: OtherHostsUsage | None = None,
) -> Index:
    """
    Return the index of this host for the files of a VM that is gone.

    If a VM of that name is defined, it is another VM, and its references count.
    """
    excluded_vms = [] if lifecycle.is_defined(conn, name) else [name]
    return usage.index(
        conn,
        settings,
        excluded_vms=excluded_vms,
        record_exempt=[name],
        removed_files=paths,
        other_hosts=elsewhere,
    )


def _may_be_needed(path: str) -> bool:
    """Return whether other files may be based on a file: seeds and links are never bases."""
    return not (seedfiles.is_seed(path) or Path(path).is_symlink())


def _use_reason(verdict: Verdict) -> str | None:
    """Return why a file stays; with doubts alone it goes into the trash instead."""
    return verdict.used_by[0].reason if verdict.used_by else None


def _error_text(error: OSError | StorageError) -> object:
    return error.strerror if isinstance(error, OSError) else error


def remove_log(name: str) -> None:
    """Remove a VM's console log, and the logs that virtlogd has rotated."""
    path = Path(console_log(name))
    if path.parent.is_dir():
        for log_path in (path, *(path.with_name(f"{path.name}.{number}") for number in range(10))):
            try:
                log_path.unlink(missing_ok=True)
            except OSError as exc:
                # If the VM's name has the maximum length of a file name, no such log exists.
                if exc.errno != errno.ENAMETOOLONG:
                    raise StorageError(f"cannot remove {log_path}: {exc.strerror}") from exc
