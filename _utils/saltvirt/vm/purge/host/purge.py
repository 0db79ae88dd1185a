"""Remove a VM with everything that was made for it, and nothing else."""

import logging
import os
import secrets
import shlex
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
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
    diskpaths,
    ownermark,
    policies,
    seedfiles,
    sharing,
    trash,
    usage,
    vmvolumes,
)
from saltvirt.storage.images import removal
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.storage.verdict import Verdict
from saltvirt.storage.vmvolumes import VmVolumes
from saltvirt.vm.power.host import startlock
from saltvirt.vm.purge.host import keptstate
from saltvirt.vm.purge.purgeanswers import Purged
from saltvirt.vm.recovery.host import unfinished
from saltvirt.xml.edit import readdomain


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """
    What a purge removes of a VM, and what it keeps.

    made_names
        The only files and volumes to remove: those that the VM's build made. None for all.
    kept_paths
        Files of the VM's other disks, with their backing chains.
    keeps_variables
        Whether the firmware's variables are kept.
    """

    uuid: str = ""
    made_names: frozenset[str] | None = None
    kept_paths: frozenset[str] = frozenset()
    keeps_variables: bool = False

    def files(self, paths: list[str]) -> list[str]:
        """Return those of a VM's own files that are removed."""
        return [path for path in paths if self._goes(path) and path not in self.kept_paths]

    def own(self, vm_volumes: VmVolumes) -> VmVolumes:
        """Return those of a VM's own files and volumes that are removed."""
        volumes = [volume for volume in vm_volumes.volumes if self._goes("/".join(volume[:2]))]
        return VmVolumes(paths=self.files(vm_volumes.paths), volumes=volumes)

    def _goes(self, name: str) -> bool:
        return self.made_names is None or name in self.made_names

    def release(self) -> None:
        """Remove the VM's owner mark from kept files: virt.doctor would report leftovers."""
        for path in self.kept_paths:
            owner = ownermark.read_owner(path)
            if owner is not None and owner.uuid == self.uuid:
                ownermark.unmark(path)


# A purge keeps only what others use.
ALL = Removal()


def read_removal(conn: Any, name: str) -> Removal:
    """
    Return the removal of what a VM's build made, as the VM's definition notes it.

    Raise StorageError if the definition does not note what the build made.
    """
    root = readdomain.domain(lifecycle.inactive_xml(conn, name))
    notes = readdomain.notes(root)
    if notes.made is None:
        raise StorageError(
            f"what the build of VM {name!r} made is not noted in its definition, so nothing is "
            f"removed; virt.purge {name} removes the VM with all its disks"
        )
    kept_paths: set[str] = set()
    for disk in readdomain.disk_sources(root):
        path = disk["path"]
        if path is None or path in notes.made:
            continue
        # Do not probe: a guest may have written an overlay's header into a raw disk.
        kept_paths.update(diskpaths.chain(path) if disk["format"] == "qcow2" else [path])
    return Removal(
        uuid=readdomain.uuid(root),
        made_names=frozenset(notes.made),
        kept_paths=frozenset(kept_paths),
        keeps_variables=not notes.made_variables,
    )


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
    left: dict[str, str] = {}
    with ExitStack() as stack:
        with reservations.host_lock(settings):
            domain_uuid = lifecycle.uuid_if_defined(conn, name)
            reservations.refuse_moving(settings, name, domain_uuid)
            if name in reservations.read_coming_vms(settings):
                raise NameTaken(f"VM {name!r} is being built on this host; wait until that is over")
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
            domain_uuid = _check_uuid(conn, name, uuid)
            vm_removal = read_removal(conn, name) if only_made else ALL
            state = keptstate.find(conn, settings, name, keeps_variables=vm_removal.keeps_variables)
            facts = PurgeFacts(
                uuid=domain_uuid,
                paths=[],
                definition=lifecycle.inactive_xml(conn, name),
                autostart=state.autostart,
                lost=state.lost or None,
                tpm_state=state.tpm_state,
            )
            facts = _find_removed(
                conn, settings, name, facts, vm_removal, state, removables, elsewhere, left
            )
            paths = facts.paths
            locked_record.begin(secrets.token_hex(16), "removing", **wire.plain(facts))
            vm_removal.release()
        keep_nvram = vm_removal.keeps_variables or state.has_variables
        purged = _remove(
            conn, settings, locked_record, paths, elsewhere, keep_nvram=keep_nvram, left=left
        )
        reservations.end(settings, locked_record)
    trash.sweep(settings)
    diskvolumes.refresh(conn, paths)
    if dirs:
        _remove_empty(conn, settings, [p for p in paths if not sharing.is_shared(settings, p)])
    return purged


def _find_removed(
    conn: Any,
    settings: HostSettings,
    name: str,
    facts: PurgeFacts,
    vm_removal: Removal,
    state: keptstate.KeptState,
    removables: bool,
    elsewhere: OtherHostsUsage,
    left: dict[str, str],
) -> PurgeFacts:
    """Return the facts of a purge with all that it removes; raise if nothing may be removed."""
    vm_volumes = vm_removal.own(
        vmvolumes.find_volumes(conn, settings, name, removables=removables, left=left)
    )
    # A disk removed from the definition stays, even if the running VM still uses it.
    candidates = _find_candidates(conn, settings, name, removables, left, is_defined=True)
    files = vm_removal.files(candidates)
    left |= dict.fromkeys(
        [path for path in candidates if path not in files], "it was there before the VM was built"
    )
    _refuse_others(conn, settings, name, [*files, *vm_volumes.paths], vm_volumes.volumes)
    devices = vmvolumes.find_shared_devices(conn, settings, vm_volumes.volumes)
    _refuse_unasked(_judge_devices(devices, elsewhere), name)
    own_paths = [*files, *vm_volumes.paths, *state.paths]
    paths = _find_unused(conn, settings, name, own_paths, elsewhere, left)
    return replace(facts, paths=paths, volumes=vm_volumes.volumes or None)


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
    diskpaths.settle_definitions()
    unfinished.remove_log(name)
    facts = locked_record.now.read(PurgeFacts)
    volumes = facts.volumes or []
    try:
        with unfinished.fill_purge_trash(settings, name, facts) as drop:
            # Build the index anew: another VM may have been defined over a file since.
            index = unfinished.index_without(conn, settings, name, paths, elsewhere)
            gone = unfinished.remove(settings, index, policies.DELETE, paths, drop, left)
            if drop.stays(volumes):
                left |= {
                    "/".join(volume[:2]): "only files can go into the trash; to remove it: "
                    f"virt.volume_delete {' '.join(map(shlex.quote, volume[:2]))}"
                    for volume in volumes
                }
            else:
                vmvolumes.remove(conn, settings, volumes, other_hosts=elsewhere, left=left)
            gone += ["/".join(volume[:2]) for volume in volumes]
            return _report(facts, drop, gone, left)
    except StorageError as exc:
        raise StorageError(f"the VM is gone, but {exc}; fix that, then purge it again") from exc


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


def _refuse_others(
    conn: Any, settings: HostSettings, name: str, own_paths: list[str], volumes: list[list[str]]
) -> None:
    """Raise StorageError if a VM's files on storage that all hosts share may be another host's."""
    root = readdomain.domain(lifecycle.xml(conn, name))
    # libvirt removes the TPM's state with the definition.
    paths = [*own_paths, readdomain.firmware_variables(root), readdomain.tpm_state(root)]
    shared_paths = [path for path in paths if path and sharing.is_shared(settings, path)]
    moved_to = readdomain.describe_notes(root)["moved_to"]
    if moved_to is None and lifecycle.is_migrated(conn, name):
        moved_to = "another host, as libvirt says"
    # Volumes that are not files may be shared by all hosts.
    shared_names = [*shared_paths, *("/".join(volume[:2]) for volume in volumes)]
    if moved_to is not None and shared_names:
        raise StorageError(
            f"VM {name!r} has moved to {moved_to}, and its files are on storage that all hosts "
            f"share ({', '.join(shared_names)}), so nothing is removed; virt.undefine {name} "
            "removes only the definition here"
        )
    is_open = not lifecycle.is_active(conn, name) and any(map(diskpaths.is_open, shared_paths))
    if is_open:
        raise StorageError(
            f"VM {name!r} does not run here, and a program, most likely on another host, has its "
            f"files open ({', '.join(shared_paths)}), so nothing is removed; if the VM is on "
            f"another host, virt.undefine {name} removes only the definition here"
        )


def find_shared_files(
    conn: Any, settings: HostSettings, name: str, *, removables: bool = False
) -> list[str]:
    """Return the files and devices that a purge would remove and other hosts see."""
    if not lifecycle.is_defined(conn, name):
        return []
    vm_volumes = vmvolumes.find_volumes(conn, settings, name, removables=removables)
    files = [
        *_find_candidates(conn, settings, name, removables, {}, is_defined=True),
        *vm_volumes.paths,
    ]
    return [
        *(
            path
            for path in files
            if sharing.is_shared(settings, path) and not seedfiles.is_seed(path)
        ),
        *vmvolumes.find_shared_devices(conn, settings, vm_volumes.volumes),
    ]


def find_own_files(conn: Any, settings: HostSettings, name: str, removables: bool) -> list[str]:
    """Return the files that belong to a VM alone, according to its current XML."""
    files = _find_candidates(conn, settings, name, removables, {})
    index = usage.index(conn, settings, excluded_vms=[name], removed_files=files)
    return [path for path in files if not index.verdict(policies.DELETE, path).used_by]


def _judge_devices(devices: Iterable[str], elsewhere: OtherHostsUsage) -> Iterator[Verdict]:
    """Yield verdicts on volumes that other hosts see, and were not asked about."""
    for path in devices:
        if not elsewhere.is_told(path):
            yield Verdict(path=path, policy=policies.DELETE, unasked=(path,))


def _refuse_unasked(verdicts: Iterable[Verdict], name: str) -> None:
    """Raise AskAll if other hosts must be asked first about files or volumes that they see."""
    sharing.refuse_unasked(
        list(verdicts),
        f"VM {name!r} is not purged",
        f"salt-run virt.purge {shlex.quote(name)}",
    )


def _find_unused(
    conn: Any,
    settings: HostSettings,
    name: str,
    paths: list[str],
    elsewhere: OtherHostsUsage,
    left: dict[str, str],
) -> list[str]:
    """Return the files that a purge removes; raise AskAll if other hosts may need any of them."""
    index = usage.index(
        conn, settings, excluded_vms=[name], removed_files=paths, other_hosts=elsewhere
    )
    verdicts = list(index.verdicts(policies.DELETE, paths).values())
    _refuse_unasked((verdict for verdict in verdicts if not seedfiles.is_seed(verdict.path)), name)
    for verdict in verdicts:
        if verdict.used_by:
            left[verdict.path] = verdict.used_by[0].reason
            log.warning("%s of VM %s stays: %s", verdict.path, name, verdict.used_by[0].reason)
    return [verdict.path for verdict in verdicts if not verdict.used_by]


def _find_candidates(
    conn: Any,
    settings: HostSettings,
    name: str,
    removables: bool,
    left: dict[str, str],
    *,
    is_defined: bool = False,
) -> list[str]:
    """
    Return the files of a VM's disks, and the files in their backing chains made for this VM.

    left
        Gets the other disks, each with the reason.
    is_defined
        Read the VM's definition, not its running XML. Defaults to False.
    """
    root = readdomain.domain(
        lifecycle.inactive_xml(conn, name) if is_defined else lifecycle.xml(conn, name)
    )
    out: list[str] = []
    for disk in readdomain.disk_sources(root):
        path = disk["path"]
        is_removable = disk["device"] in ("cdrom", "floppy")
        if path is not None and is_removable and not removables:
            left[path] = "it is a cdrom or floppy image"
            continue
        if path is None or disk["type"] != "file":
            continue
        if diskpaths.is_device(path):
            left[path] = "it is a device"
            log.warning("%s stays: it is a device, though VM %s has it as a file", path, name)
            continue
        # VMs of all hosts may read a shared file that this VM only reads.
        if (is_removable or disk["is_readonly"]) and sharing.is_shared(settings, path):
            left[path] = f"VM {name} only reads it, and others may"
            continue
        out += [path, *_find_own_below(disk, readdomain.uuid(root))]
    return list(dict.fromkeys(out))


def _find_own_below(disk: dict[str, Any], uuid: str) -> Iterator[str]:
    """Yield the files below a disk that were made for its VM, such as before a snapshot."""
    # A guest can write a fake overlay header into its raw disk.
    below = diskpaths.chain_below(disk["path"]) if disk["format"] == "qcow2" else []
    for path in below:
        # A path in a header may lead through a folder that is removed before this file.
        path = str(Path(path).parent.resolve() / Path(path).name)
        owner = ownermark.read_owner(path)
        if owner is not None and owner.uuid == uuid and owner.is_of_this_host:
            yield path


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
