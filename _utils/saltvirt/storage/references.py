"""Read every reference to a file on a host from its source, and decide nothing."""

import os
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from saltvirt.core.options import config
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import departedvms, reservations
from saltvirt.libvirt.domains import lifecycle, query, snapshots
from saltvirt.libvirt.storage import volumes
from saltvirt.storage import diskpaths, policies, unreadablechains
from saltvirt.storage.verdict import Reference
from saltvirt.xml.edit import readdomain
from saltvirt.xml.storage.snapshot import Snapshot

_DISK = "VM {!r} has it as a disk; purge that VM (virt.purge), or detach the disk first"
_BACKING = "a disk of VM {!r} is based on it; purge that VM (virt.purge), or detach the disk first"
_SNAPSHOT = "a snapshot of VM {!r} needs it; delete that (virt.delete_snapshots) first"
_OWN_SNAPSHOT = (
    "snapshot {1!r} of VM {0!r} itself goes back to it; delete that snapshot first "
    "(virt.delete_snapshots {words}), or give it up: virsh snapshot-delete {words} --metadata"
)
_OWN_INTERNAL = (
    "snapshot {1!r} of VM {0!r} itself is kept in it; delete that snapshot first "
    "(virt.delete_snapshots {words})"
)
_OWN_TEXTS = {policies.OWN_SNAPSHOT: _OWN_SNAPSHOT, policies.OWN_INTERNAL: _OWN_INTERNAL}
_SAVED = (
    "VM {!r} has a saved state (managed save), which would go on over what is in it by then; "
    "start it and shut it down, or drop that state with virsh managedsave-remove {vm}"
)
_KEPT = "a definition of VM {!r} that this host kept after a move names it ({})"
_BOOT = "VM {!r} boots from it; purge that VM (virt.purge), or change how it boots first"
_COMING = (
    "it is to be a disk of VM {0!r}, which is being built here or on its way here; wait until that "
    "is over, or if it was interrupted: salt-run virt.settle {vm}"
)
_COMING_BACKING = (
    "a disk is based on it, one of VM {0!r}, which is being built here or on its way here; wait "
    "until that is over, or if it was interrupted: salt-run virt.settle {vm}"
)
_GOING = "it is a file {}"
_GOING_BACKING = "a disk is based on it, one {}"
_TRASHED = f"a disk in the trash (entry {{}}) is based on it; {unreadablechains.REMEDY}"
_FILE = "{} is based on it, a file that no VM here has; remove that file first, or give it to a VM"


PathReferences = Iterator[tuple[str, Reference]]


@dataclass(kw_only=True)
class Host:
    """
    A host's references; each source is read once, on first use.

    conn
        The connection to its libvirt, None on a host without libvirt.
    excluded_vms
        VMs that do not count as users, such as the VM that is purged.
    record_exempt
        VMs with records and kept definitions that do not count, beside those of ``excluded_vms``.
    removed_files
        Files that are removed together: their backing files do not count.
    snapshots_going
        Snapshots of the VMs of ``excluded_vms`` that are deleted.
    folders
        Folders to search for overlays that no VM has, beside the folders of disks.
    searched_folders
        Folders that the asking host searches itself: files of no VM there do not count.
    uuid
        A VM that another host removes: its kept definition here does not count.
    """

    conn: Any
    settings: HostSettings
    excluded_vms: Collection[str] = ()
    record_exempt: Collection[str] = ()
    removed_files: Collection[str] = ()
    snapshots_going: Collection[str] = ()
    folders: Collection[Path] = ()
    searched_folders: Collection[Path] = ()
    uuid: str | None = None
    _sources: dict[str, dict[str, Reference]] = field(default_factory=dict)

    @cached_property
    def is_local(self) -> bool:
        """Whether libvirt's files are this machine's files."""
        return config.is_local(self.settings.uri)

    @cached_property
    def disks(self) -> Mapping[str, set[str]]:
        """``{VM: paths}``."""
        return {} if self.conn is None else lifecycle.disks(self.conn)

    @cached_property
    def snapshots_by_vm(self) -> Mapping[str, list[Snapshot]]:
        """``{VM: snapshots}``."""
        return {} if self.conn is None else snapshots.read_all(self.conn)

    @cached_property
    def disk_folders(self) -> set[Path]:
        """The folders in which VMs' files may lie."""
        folders = [] if self.conn is None else diskpaths.folders(self.conn, self.settings)
        return {*folders, *(folder for folder in self.folders if folder.is_dir())}

    @cached_property
    def record_exempt_vms(self) -> set[str]:
        """The VMs with records and kept definitions that do not count."""
        return {*self.excluded_vms, *self.record_exempt}

    @cached_property
    def removed_paths(self) -> set[str]:
        """The removed files' paths, as given and resolved."""
        return {name for path in self.removed_files for name in (path, os.path.realpath(path))}

    def all_references(self, source: str) -> Iterator[tuple[str, Reference]]:
        """Yield ``(path or POOL/VOLUME, reference)`` of a source; a file can have several."""
        yield from PROVIDERS[source](self)

    def first_references(self, source: str) -> Mapping[str, Reference]:
        """Return ``{path or POOL/VOLUME: first reference}`` of a source."""
        if source not in self._sources:
            references_by_path: dict[str, Reference] = {}
            for path, reference in self.all_references(source):
                references_by_path.setdefault(path, reference)
                if path.startswith("/"):
                    references_by_path.setdefault(os.path.realpath(path), reference)
            self._sources[source] = references_by_path
        return self._sources[source]


def _disks(host: Host) -> PathReferences:
    for vm, paths in sorted(host.disks.items()):
        if vm not in host.excluded_vms:
            for path in sorted(paths):
                yield path, _build_reference(policies.DISK, vm, _DISK)


def _build_reference(source: str, owner: str, text: str, *details: str) -> Reference:
    return Reference(source=source, owner=owner, reason=_reason(text, owner, *details))


def _reason(text: str, owner: str, *details: str) -> str:
    """Format a reason; ``{vm}`` and ``{words}`` are quoted for the shell."""
    words = shlex.join([owner, *details])
    return text.format(owner, *details, vm=shlex.quote(owner), words=words)


def _backing(host: Host) -> PathReferences:
    if host.conn is None:
        return
    for vm, paths in sorted(lifecycle.overlays_by_vm(host.conn).items()):
        if vm in host.excluded_vms:
            continue
        # libvirt knows a disk's backing chain only while its domain runs.
        for path in (
            backing_path for disk in sorted(paths) for backing_path in diskpaths.chain_below(disk)
        ):
            yield path, _build_reference(policies.BACKING, vm, _BACKING)


def _pool_volumes(host: Host, source: str) -> PathReferences:
    """
    Yield the volumes that VMs have as disks, or in backing chains, as the pools list them.

    A volume in a backing chain may be on a server, and have no readable header.
    """
    is_disk = source == policies.POOL_DISK
    find_users = volumes.users if is_disk else volumes.find_backing_users
    for place, vms in find_users(host.conn).items() if host.conn is not None else ():
        for vm in sorted(vms.difference(host.excluded_vms)):
            yield "/".join(place), _build_reference(source, vm, _DISK if is_disk else _BACKING)


def _snapshots(host: Host, source: str) -> PathReferences:
    """Yield the files that snapshots revert to, and their backing chains."""
    is_external = source in (policies.SNAPSHOT, policies.OWN_SNAPSHOT)
    is_own = source in _OWN_TEXTS
    for vm, vm_snapshots in sorted(host.snapshots_by_vm.items()):
        if (vm in host.excluded_vms) != is_own:
            continue
        disks = set(map(os.path.realpath, host.disks.get(vm, ())))
        for snapshot in vm_snapshots:
            if snapshot.is_external != is_external or (
                is_own and snapshot.name in host.snapshots_going
            ):
                continue
            reference = _build_reference(
                source, vm, _OWN_TEXTS.get(source, _SNAPSHOT), snapshot.name
            )
            for path in _find_revert_files(host.conn, snapshot, () if is_own else disks):
                yield path, reference


def _find_revert_files(conn: Any, snapshot: Snapshot, disks: Collection[str]) -> Iterator[str]:
    """Yield the files that a snapshot reverts to, except its VM's disks, and backing chains."""
    for path in snapshot.reverted:
        file = lifecycle.find_disk_file(conn, path)
        if os.path.realpath(file) not in disks:
            yield file
        # A guest can write an overlay's header into a raw disk.
        yield from diskpaths.chain_below(file) if path in snapshot.overlays else ()


def _saved_states(host: Host) -> PathReferences:
    for vm in sorted(lifecycle.saved(host.conn)) if host.conn is not None else ():
        for path in sorted(host.disks.get(vm, ())) if vm not in host.excluded_vms else ():
            yield path, _build_reference(policies.SAVED, vm, _SAVED)


def _kept_definitions(host: Host) -> PathReferences:
    for vm, path, root in departedvms.definitions(host.settings):
        is_spared = vm in host.record_exempt_vms or (
            host.uuid is not None and readdomain.uuid(root) == host.uuid
        )
        for disk in readdomain.disk_sources(root) if not is_spared else ():
            if disk["path"]:
                yield disk["path"], _build_reference(policies.KEPT, vm, _KEPT, str(path))


def _boot_references(host: Host) -> PathReferences:
    for definition in query.definitions(host.conn, with_next=True) if host.conn is not None else ():
        for root in (definition.root, definition.next_root):
            for path in _boot_files(root) if definition.name not in host.excluded_vms else ():
                yield path, _build_reference(policies.BOOT, definition.name, _BOOT)


def _boot_files(root: ET.Element | None) -> list[str]:
    if root is None:
        return []
    variables = readdomain.firmware_variables(root)
    return [*readdomain.boot_files(root), *([variables] if variables else [])]


def _coming_files(host: Host) -> PathReferences:
    for path, vm in reservations.coming_files(host.settings, "").items():
        if vm not in host.record_exempt_vms:
            yield path, _build_reference(policies.COMING, vm, _COMING)


def _going_files(host: Host) -> PathReferences:
    for path, (vm, words) in reservations.going_by_vm(host.settings).items():
        if vm not in host.record_exempt_vms:
            yield path, _build_reference(policies.GOING, vm, _GOING.replace("{}", "{1}"), words)


def _record_backing(host: Host) -> PathReferences:
    """Yield the backing files of disks of VMs that are being built, moved or removed."""
    coming = reservations.coming_files(host.settings, "").items()
    going = reservations.going_by_vm(host.settings).items()
    texts = {
        **{path: (vm, _GOING_BACKING.replace("{}", words)) for path, (vm, words) in going},
        **{path: (vm, _reason(_COMING_BACKING, vm)) for path, vm in coming},
    }
    for path, (vm, text) in texts.items():
        if vm in host.record_exempt_vms or not path.startswith("/") or path in host.removed_paths:
            continue
        for backing_path in diskpaths.chain_below(path):
            yield backing_path, Reference(source=policies.RECORD, owner=vm, reason=text)


def _trash(host: Host) -> PathReferences:
    for path, entry in unreadablechains.backing_files(host.settings).items():
        yield path, _build_reference(policies.TRASH, entry, _TRASHED)


def _other_trash(host: Host) -> PathReferences:
    for path in unreadablechains.backing_files_beside(host.settings, host.disk_folders):
        yield path, _build_reference(policies.OTHER_TRASH, "of another host", _TRASHED)


def _files(host: Host) -> PathReferences:
    """Yield the backing files of files that no VM has, such as disks left by ``virt.undefine``."""
    disks = {os.path.realpath(path) for paths in host.disks.values() for path in paths}
    for folder in sorted(host.disk_folders):
        for file in _plain_files(folder):
            real = os.path.realpath(file)
            if (
                file in host.removed_paths
                or real in {*disks, *host.removed_paths}
                or Path(real).parent in host.searched_folders
            ):
                continue
            for path in diskpaths.chain_below(file):
                yield path, _build_reference(policies.FILE, file, _FILE)


def _plain_files(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        yield from sorted(entry.path for entry in entries if entry.is_file())


PROVIDERS: Mapping[str, Callable[[Host], PathReferences]] = {
    policies.DISK: _disks,
    policies.BACKING: _backing,
    **{
        source: partial(_pool_volumes, source=source)
        for source in (policies.POOL_DISK, policies.POOL_BACKING)
    },
    **{
        source: partial(_snapshots, source=source)
        for source in (policies.SNAPSHOT, policies.INTERNAL, *_OWN_TEXTS)
    },
    policies.SAVED: _saved_states,
    policies.KEPT: _kept_definitions,
    policies.BOOT: _boot_references,
    policies.COMING: _coming_files,
    policies.GOING: _going_files,
    policies.RECORD: _record_backing,
    policies.TRASH: _trash,
    policies.OTHER_TRASH: _other_trash,
    policies.FILE: _files,
}
