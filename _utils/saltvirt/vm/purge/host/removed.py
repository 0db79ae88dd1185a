"""Decide what a purge removes of a VM, and what stays and why; nothing is changed."""

import logging
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from saltvirt.core.errors import StorageError
from saltvirt.core.journal.recordfacts import PurgeFacts
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import (
    diskpaths,
    ownermark,
    policies,
    seedfiles,
    sharing,
    usage,
    vmvolumes,
)
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.storage.verdict import Verdict
from saltvirt.storage.vmvolumes import VmVolumes
from saltvirt.vm.purge.host import keptstate
from saltvirt.xml.edit import readdomain

log = logging.getLogger(__name__)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """
    What a purge of a VM would do, decided under the host's lock.

    facts
        All that is removed, as the record has it.
    removal
        What is removed and what is kept, if not all is.
    state
        What is kept beside the disks.
    left
        ``{file or volume: reason}`` of what stays.
    """

    facts: PurgeFacts
    removal: Removal
    state: keptstate.KeptState
    left: dict[str, str]


def decide(
    conn: Any,
    settings: HostSettings,
    name: str,
    uuid: str,
    *,
    removables: bool,
    only_made: bool,
    elsewhere: OtherHostsUsage,
) -> Decision:
    """
    Return what a purge of a defined VM removes; raise if nothing may be removed.

    uuid
        The VM's UUID; the other arguments are those of the purge.

    Raises :class:`saltvirt.storage.sharing.AskAll` if other hosts must be asked first.
    """
    left: dict[str, str] = {}
    removal = read_removal(conn, name) if only_made else ALL
    state = keptstate.find(conn, settings, name, keeps_variables=removal.keeps_variables)
    facts = PurgeFacts(
        uuid=uuid,
        paths=[],
        definition=lifecycle.inactive_xml(conn, name),
        autostart=state.autostart,
        lost=state.lost or None,
        tpm_state=state.tpm_state,
    )
    facts = _find_removed(conn, settings, name, facts, removal, state, removables, elsewhere, left)
    return Decision(facts=facts, removal=removal, state=state, left=left)


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
