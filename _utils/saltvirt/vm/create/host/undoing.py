"""
Undo a finished build: remove what the build made, and keep everything else.

A purge removes all disks of a VM. An undo keeps the existing disks and volumes that the build took,
and those that an operator has attached since.
"""

from dataclasses import dataclass
from typing import Any

from saltvirt.core.errors import StorageError
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import diskpaths, ownermark
from saltvirt.storage.vmvolumes import VmVolumes
from saltvirt.xml.edit import readdomain


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """
    What an undo of a VM's build removes, and what it keeps.

    made_names
        The files and volumes that the build made; None to remove all of the VM's.
    kept_paths
        Files of its other disks, with their backing chains.
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
ALL = Undo()


def read_undo(conn: Any, name: str) -> Undo:
    """
    Return what an undo of a VM's build removes and keeps, as the VM's definition notes it.

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
    return Undo(
        uuid=readdomain.uuid(root),
        made_names=frozenset(notes.made),
        kept_paths=frozenset(kept_paths),
        keeps_variables=not notes.made_variables,
    )
