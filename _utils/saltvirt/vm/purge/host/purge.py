"""Remove a VM with everything that was made for it, and nothing else."""

import logging
import os
import secrets
import shlex
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from saltvirt.core import terminal, wire
from saltvirt.core.errors import LibvirtRefused, NameTaken, NoSuchVm, StorageError
from saltvirt.core.journal import records
from saltvirt.core.journal.recordfacts import PurgeFacts
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import departedvms, reservations
from saltvirt.libvirt.domains import domainfiles, lifecycle, snapshots
from saltvirt.libvirt.storage import diskvolumes
from saltvirt.seeding import submission
from saltvirt.storage import (
    definitionfiles,
    diskpaths,
    ownermark,
    policies,
    sharing,
    trash,
    usage,
    vmvolumes,
)
from saltvirt.storage.images import removal
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.vm.power.host import startlock
from saltvirt.vm.purge.host import removed
from saltvirt.vm.purge.purgeanswers import Purged
from saltvirt.vm.recovery.host import unfinished
from saltvirt.xml.edit import readdomain

log = logging.getLogger(__name__)


def purge(
    conn: Any,
    settings: HostSettings,
    name: str,
    *,
    dirs: bool = False,
    removables: bool = False,
    uuid: str | None = None,
    only_made: bool = False,
    elsewhere: OtherHostsUsage | None = None,
) -> Purged:
    """
    Remove a VM: stop and undefine it, remove its disks, seed, console log and unused token.

    A file that anything else needs stays, and the log says why (:mod:`saltvirt.storage.policies`).
    Volumes of storage pools are removed like files; block and network disks outside pools stay.
    With ``virt:trash_days``, or if a possible user of a file cannot be read, files go into the
    trash, except the seed. The next purge finishes an interrupted one. Returns what was removed,
    and what stays and why.

    dirs
        Remove folders that are empty afterwards. Defaults to False.
    removables
        Remove cdrom and floppy images too. Defaults to False.
    uuid
        The VM's expected UUID; a VM with another UUID stays. Defaults to any.
    only_made
        Undo the VM's build: disks that existed before the build stay. Defaults to False.
    elsewhere
        Other hosts' usage of files that they see. Defaults to nothing.

    Raises :class:`saltvirt.storage.sharing.AskAll`, with nothing changed, if other hosts must be
    asked first.
    """
    elsewhere = elsewhere or OtherHostsUsage()
    with ExitStack() as stack:
        with reservations.host_lock(settings):
            _refuse_at_work(conn, settings, name)
            leftover_message = unfinished.leftovers_of_purge_message(settings, name)
            was_begun = unfinished.settle_one(conn, settings, name)
            busy_message = f"VM {name!r} is being purged on this host by another job"
            locked_record = stack.enter_context(
                reservations.open_record(settings, "purge", name, busy_message)
            )
            if not lifecycle.is_defined(conn, name):
                if not was_begun:
                    raise NoSuchVm(name)
                removal.sweep(settings)
                if leftover_message is not None:
                    raise StorageError(leftover_message)
                return Purged()
            decision = removed.decide(
                conn,
                settings,
                name,
                _check_uuid(conn, name, uuid),
                removables=removables,
                only_made=only_made,
                elsewhere=elsewhere,
            )
            paths = decision.facts.paths
            locked_record.begin(secrets.token_hex(16), "removing", **wire.plain(decision.facts))
            decision.removal.release()
        keep_nvram = decision.removal.keeps_variables or decision.state.has_variables
        purged = _remove(
            conn,
            settings,
            locked_record,
            paths,
            elsewhere,
            keep_nvram=keep_nvram,
            left=decision.left,
        )
        reservations.end(settings, locked_record)
    trash.sweep(settings)
    diskvolumes.refresh(conn, paths)
    if dirs:
        _remove_empty(conn, settings, [p for p in paths if not sharing.is_shared(settings, p)])
    return purged


def plan(
    conn: Any,
    settings: HostSettings,
    name: str,
    *,
    removables: bool = False,
    uuid: str | None = None,
    only_made: bool = False,
    elsewhere: OtherHostsUsage | None = None,
) -> Purged:
    """
    Return what :func:`purge` would remove, put into the trash and leave; nothing is changed.

    The arguments are those of :func:`purge`, and so are the refusals. The entry of the trash has no
    name yet. Raises NameTaken if an interrupted build or purge of the VM is on record here: the
    purge settles it first.
    """
    elsewhere = elsewhere or OtherHostsUsage()
    with reservations.host_lock(settings):
        _refuse_at_work(conn, settings, name)
        if name in reservations.find_unfinished(settings):
            raise NameTaken(
                f"what virt.purge would remove is not known: a build or a purge of VM {name!r} was "
                "interrupted on this host, and virt.purge settles that first"
            )
        reservations.refuse_building(settings, name)
        if not lifecycle.is_defined(conn, name):
            raise NoSuchVm(name)
        decision = removed.decide(
            conn,
            settings,
            name,
            _check_uuid(conn, name, uuid),
            removables=removables,
            only_made=only_made,
            elsewhere=elsewhere,
        )
        facts, left = decision.facts, decision.left
        volumes = facts.volumes or []
        index = usage.index(
            conn, settings, excluded_vms=[name], removed_files=facts.paths, other_hosts=elsewhere
        )
        with unfinished.fill_purge_trash(settings, name, facts, is_dry=True) as drop:
            gone = unfinished.remove(settings, index, policies.DELETE, facts.paths, drop, left)
            if drop.stays(volumes):
                left |= _describe_kept(volumes)
            else:
                left |= _find_needed(conn, settings, volumes, name, elsewhere)
            gone += ["/".join(volume[:2]) for volume in volumes]
            return replace(_report(facts, drop, gone, left), entry=None)


def _refuse_at_work(conn: Any, settings: HostSettings, name: str) -> None:
    """Raise NameTaken if the VM is being moved, cloned or built."""
    reservations.refuse_moving(settings, name, lifecycle.uuid_if_defined(conn, name))
    if name in reservations.read_coming_vms(settings):
        raise NameTaken(f"VM {name!r} is being built on this host; wait until that is over")


def _check_uuid(conn: Any, name: str, uuid: str | None) -> str:
    """Return the UUID of a VM; raise NameTaken if it is not the expected one."""
    actual_uuid = lifecycle.uuid(conn, name)
    if uuid not in (None, actual_uuid):
        raise NameTaken(
            f"VM {name!r} is another one here: its UUID is {actual_uuid}, not {uuid}; nothing is "
            "removed"
        )
    moved_to = lifecycle.moved_to(conn, name)
    if uuid is not None and moved_to is not None:
        raise NameTaken(
            f"VM {name!r} has moved to {moved_to}, and only its definition was kept here; nothing "
            "is removed"
        )
    return actual_uuid


def _remove(
    conn: Any,
    settings: HostSettings,
    locked_record: records.LockedRecord,
    paths: list[str],
    elsewhere: OtherHostsUsage,
    *,
    keep_nvram: bool,
    left: dict[str, str],
) -> Purged:
    name, moved_to = locked_record.name, lifecycle.moved_to(conn, locked_record.name)
    # A VM started in between would run on without a definition, and its files would stay.
    with startlock.hold_start_lock(settings, name):
        lifecycle.destroy(conn, name)
        # Settling an interrupted purge tells by the signatures which files are still this VM's.
        signatures = unfinished.signatures(paths)
        locked_record.note(
            **wire.plain(replace(locked_record.now.read(PurgeFacts), untouched=signatures))
        )
        keep_nvram = keep_nvram or domainfiles.has_shared_variables(conn, name)
        keep_tpm = locked_record.now.read(PurgeFacts).tpm_state is not None
        lifecycle.undefine(conn, name, keep_nvram=keep_nvram, keep_tpm=keep_tpm)
    submission.forget_token(settings, name)
    if moved_to is None:
        departedvms.forget_target(settings, name)
    else:
        departedvms.note_target(settings, name, moved_to)
    # Sync first, or a crash could restore the definition after the files are gone.
    definitionfiles.settle_definitions()
    unfinished.remove_log(name)
    facts = locked_record.now.read(PurgeFacts)
    volumes = facts.volumes or []
    try:
        with unfinished.fill_purge_trash(settings, name, facts) as drop:
            # Build the index anew: another VM may have been defined over a file since.
            index = unfinished.index_without(conn, settings, name, paths, elsewhere)
            gone = unfinished.remove(settings, index, policies.DELETE, paths, drop, left)
            if drop.stays(volumes):
                left |= _describe_kept(volumes)
            else:
                vmvolumes.remove(conn, settings, volumes, other_hosts=elsewhere, left=left)
            gone += ["/".join(volume[:2]) for volume in volumes]
            return _report(facts, drop, gone, left)
    except StorageError as exc:
        raise StorageError(f"the VM is gone, but {exc}; fix that, then purge it again") from exc


def _find_needed(
    conn: Any,
    settings: HostSettings,
    volumes: Iterable[Sequence[str]],
    name: str,
    elsewhere: OtherHostsUsage,
) -> dict[str, str]:
    """Return ``{POOL/VOLUME: reason}`` of a VM's volumes that something else may need."""
    out = {}
    for pool, volume, *_number in volumes:
        verdict = vmvolumes.judge_volume(
            conn, settings, policies.DELETE, pool, volume, name, other_hosts=elsewhere
        )
        if not verdict.is_free:
            out[f"{pool}/{volume}"] = verdict.reason or "unknown"
    return out


def _describe_kept(volumes: Iterable[Sequence[str]]) -> dict[str, str]:
    """Return ``{POOL/VOLUME: reason}`` of the volumes that stay as the trash is on."""
    return {
        "/".join(volume[:2]): "only files can go into the trash; to remove it: "
        f"virt.volume_delete {' '.join(map(shlex.quote, volume[:2]))}"
        for volume in volumes
    }


def _report(
    facts: PurgeFacts, drop: trash.TrashFiller, gone: Iterable[str], left: dict[str, str]
) -> Purged:
    """Return what a purge has removed, and what stays."""
    return Purged(
        removed=[path for path in gone if path not in left and path not in drop.files],
        trashed=list(drop.files),
        left=left,
        lost=facts.lost or [],
        entry=drop.entry if drop.until else None,
        until=records.time_text(drop.until) or None,
        can_undo=drop.can_undo,
    )


def undefine(
    conn: Any,
    settings: HostSettings,
    name: str,
    *,
    managed_save: bool = False,
    snapshots: bool = False,
) -> None:
    """
    Remove a VM's definition; its disks stay, and so does state that another host may use.

    managed_save, snapshots
        Drop the saved state; drop libvirt's metadata of snapshots and checkpoints. Default to
        False: a VM that has any is refused.

    Raises NameTaken if the VM is being moved, built or purged. An interrupted build or purge is
    settled first.
    """
    # Moves begin under the same lock.
    with reservations.host_lock(settings):
        root = readdomain.domain(lifecycle.xml(conn, name))
        reservations.refuse_moving(settings, name, readdomain.uuid(root))
        _settle_begun(conn, settings, name, readdomain.uuid(root))
        noted = readdomain.firmware_variables(root)
        moved_to = lifecycle.moved_to(conn, name)
        state = readdomain.tpm_state(root)
        if moved_to is None:
            _refuse_lost_tpm(name, state)
            _refuse_data_loss(conn, name, managed_save=managed_save, drops_snapshots=snapshots)
        is_shared = noted is not None and sharing.is_shared(settings, noted)
        is_kept = is_shared and not lifecycle.is_active(conn, name)
        is_kept = is_kept or moved_to is not None
        is_kept = is_kept or domainfiles.has_shared_variables(conn, name)
        paths = _find_chain_files(conn, name)
        if moved_to is not None:
            # Without this record, applying a Salt state here would make the VM a second time.
            departedvms.note_target(settings, name, moved_to)
        # The disks stay, and the guest may need the TPM's state to decrypt them.
        lifecycle.undefine(conn, name, keep_nvram=is_kept, keep_tpm=state is not None)
        for path in paths:
            # With its mark, virt.doctor would report the kept disk as a leftover.
            ownermark.unmark(path)


def _refuse_data_loss(conn: Any, name: str, *, managed_save: bool, drops_snapshots: bool) -> None:
    """Raise LibvirtRefused if undefining a VM would lose data kept with its definition."""
    if not managed_save and name in lifecycle.saved(conn):
        raise LibvirtRefused(
            f"VM {name!r} has a saved state (managed save), which its definition alone keeps, so "
            "it is not undefined; start it first, or give managed_save=True to lose that state"
        )
    if not drops_snapshots and name in lifecycle.list_domains_with_checkpoints(conn):
        raise LibvirtRefused(
            f"VM {name!r} has checkpoints, of incremental backups mostly, which its definition "
            "alone keeps, so it is not undefined; delete them first (virsh checkpoint-list, virsh "
            "checkpoint-delete), or give snapshots=True to leave them in its disks, where libvirt "
            "does not know them: the next backup is a full one then"
        )
    snapshot_names = [] if drops_snapshots else snapshots.names(conn, name)
    if snapshot_names:
        raise LibvirtRefused(
            f"VM {name!r} has snapshots ({terminal.join_some(snapshot_names)}), which its "
            "definition alone keeps, so it is not undefined; delete them first "
            f"(virt.delete_snapshots {name} all=True), or give snapshots=True to leave them in its "
            "disks, where libvirt does not know them"
        )


def _refuse_lost_tpm(name: str, state: str | None) -> None:
    """
    Raise LibvirtRefused if libvirt would remove the state of a VM's TPM with its definition.

    The message does not suggest virsh undefine: with that the disks keep their marks, and
    virt.doctor reports them as leftovers.
    """
    if state is not None and os.path.exists(state) and not lifecycle.keeps_tpm():
        raise LibvirtRefused(
            f"VM {name!r} has a TPM, whose state ({state}) libvirt before 8.9 removes with the "
            "definition, and with it what opens its disks, maybe; update libvirt, or stop the VM, "
            f"move that folder away to keep it, and call virt.undefine {name} again"
        )


def _find_chain_files(conn: Any, name: str) -> set[str]:
    """Return the files of a VM's disks and of their backing chains."""
    overlays = lifecycle.overlays(conn)
    disks = (path for path in lifecycle.disks(conn)[name] if path.startswith("/"))
    # A guest may have written a fake overlay header into its raw disk.
    return {
        file_path
        for path in disks
        for file_path in (diskpaths.chain(path) if path in overlays else [path])
    }


def _settle_begun(conn: Any, settings: HostSettings, name: str, domain_uuid: str) -> None:
    """
    Settle an interrupted purge or build of a VM to be undefined; raise NameTaken if it still runs.

    Settling after the undefine would find no definition, and remove the files.
    """
    record_names = [
        record.name
        for purpose in reservations.SETTLED_HERE
        for record in reservations.find_records(settings, purpose, name, domain_uuid)
    ]
    for record_name in dict.fromkeys([name, *record_names]):
        unfinished.settle_one(conn, settings, record_name)
        reservations.refuse_building(settings, record_name)


def _remove_empty(conn: Any, settings: HostSettings, paths: list[str]) -> None:
    """Remove the empty folders of files, except folders in which new disks are made."""
    kept_folders = diskpaths.folders(conn, settings)
    for folder in {Path(path).parent for path in paths}:
        if folder.resolve() in kept_folders:
            continue
        try:
            folder.rmdir()
        except OSError as exc:
            # The VM is purged all the same; the folder may be a mount point, or in use.
            log.info("folder %s stays: %s", folder, exc.strerror)
