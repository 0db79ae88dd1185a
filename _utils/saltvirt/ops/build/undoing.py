"""
Take a finished build back: remove what the build made, and leave what was there before.

A purge removes all disks of a VM. A build may have taken disks and volumes that were there, and an
operator may have attached others since: they are none of what the build made.
"""

from dataclasses import dataclass
from typing import Any

from saltvirt.errors import StorageError
from saltvirt.kvm import lifecycle
from saltvirt.ops import owned, storage
from saltvirt.ops.ownvolumes import VmVolumes
from saltvirt.xml import read


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """
    What of a VM goes, and what stays, when its build is taken back.

    made
        The files and volumes that the build made; None has all of the VM's go.
    uuid
        That of the VM.
    kept
        Files of its other disks, with what these are based on.
    keeps_variables
        Whether the firmware's variables stay.
    """

    uuid: str = ""
    made: frozenset[str] | None = None
    kept: frozenset[str] = frozenset()
    keeps_variables: bool = False

    def files(self, paths: list[str]) -> list[str]:
        """Return those of a VM's own files that go."""
        return [path for path in paths if self._goes(path) and path not in self.kept]

    def own(self, vm_volumes: VmVolumes) -> VmVolumes:
        """Return those of a VM's own volumes that go."""
        volumes = [volume for volume in vm_volumes.volumes if self._goes("/".join(volume[:2]))]
        return VmVolumes(paths=self.files(vm_volumes.paths), volumes=volumes)

    def _goes(self, name: str) -> bool:
        return self.made is None or name in self.made

    def release(self) -> None:
        """Take the VM's mark off what stays: virt.doctor would take it for left by the VM."""
        for path in self.kept:
            owner = owned.read_owner(path)
            if owner is not None and owner.uuid == self.uuid:
                owned.unmark(path)


# A purge: nothing stays but what others use.
ALL = Undo()


def read_undo(conn: Any, name: str) -> Undo:
    """
    Return what goes and what stays of a VM whose build is taken back, as its definition notes it.

    Raises StorageError if its definition does not note what its build made.
    """
    root = read.domain(lifecycle.inactive_xml(conn, name))
    notes = read.notes(root)
    if notes.made is None:
        raise StorageError(
            f"what the build of VM {name!r} made is not noted in its definition, so nothing is "
            f"removed; virt.purge {name} removes the VM with all its disks"
        )
    kept_paths: set[str] = set()
    for disk in read.disk_sources(root):
        path = disk["path"]
        if path is None or path in notes.made:
            continue
        # Into a raw disk its guest may have written what looks like the header of an overlay.
        kept_paths.update(storage.chain(path) if disk["format"] == "qcow2" else [path])
    return Undo(
        uuid=read.uuid(root),
        made=frozenset(notes.made),
        kept=frozenset(kept_paths),
        keeps_variables=not notes.made_variables,
    )
