"""Decide from facts whether a disk can be moved into another file; pure functions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from saltvirt.core.units import MIB, human

_FORMATS = ("qcow2", "raw")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskState:
    """
    A disk as it is, and what its VM has that may need the disk's present file.

    device, type, format
        As the definition has them.
    is_file
        Whether it is a regular file of this host, and no link.
    is_encrypted, has_data_file, has_snapshots
        What its definition, or the header of its file, says.
    backing, backing_format
        The file that it is based on, as its header names it, and the format of that.
    is_running
        Whether its VM runs, or is paused.
    has_other_live
        Whether the running VM has another disk at its target.
    snapshots, checkpoints
        The names of the VM's snapshots; whether the VM has checkpoints.
    is_saved
        Whether the VM has a saved state.
    busy_targets
        The VM's disks that libvirt works on.
    """

    device: str
    type: str | None
    format: str
    is_file: bool
    is_encrypted: bool
    has_data_file: bool
    has_snapshots: bool
    backing: str | None
    backing_format: str | None
    is_running: bool
    has_other_live: bool
    snapshots: Sequence[str]
    checkpoints: bool
    is_saved: bool
    busy_targets: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomState:
    """
    The room at the place where the disk is to go.

    stock
        The name of what the disk takes a promise of, such as a storage pool; None if it takes none.
    left_mib
        What is free to promise of that.
    size_bytes, allocated_bytes
        The disk's size, and what its file takes now.
    free_bytes, reserve_bytes
        What is free on the file system, and what is kept for VMs.
    """

    folder: str
    stock: str | None
    left_mib: int
    size_bytes: int
    allocated_bytes: int
    free_bytes: int
    reserve_bytes: int


def find_obstacles(state: DiskState) -> Iterator[str]:
    """Yield the reasons why a disk cannot be moved, each with what helps."""
    yield from _find_obstacles_of_file(state)
    yield from _find_obstacles_of_vm(state)


def _find_obstacles_of_file(state: DiskState) -> Iterator[str]:
    if state.device != "disk":
        yield f"it is a {state.device}; virt.insert changes its medium"
    elif state.type not in ("file", "volume") or not state.is_file:
        yield "it is no regular file of this host, and only files are moved"
    elif state.format not in _FORMATS:
        yield f"its format is {state.format}; only qcow2 and raw are moved"
    if state.is_encrypted:
        yield "it is encrypted, and the copy would not be"
    if state.has_data_file:
        yield (
            "it has its content in a data file of its own; make it one file first "
            "(qemu-img convert -O qcow2)"
        )
    if state.is_running and state.has_snapshots and not state.snapshots:
        yield "its file has snapshots that libvirt does not know; stop the VM first"
    if state.backing is not None:
        yield from _find_obstacles_below(state, state.backing)


def _find_obstacles_below(state: DiskState, backing: str) -> Iterator[str]:
    if not backing.startswith("/"):
        yield (
            f"its header names {backing}, the file that it is based on, without a folder; "
            "stop the VM and give the whole path: qemu-img rebase -u"
        )
    if state.is_running and state.backing_format is None:
        # A guess would change what the guest reads.
        yield (
            "its header does not say the format of the file that it is based on; stop the VM and "
            "give it: qemu-img rebase -u -F"
        )


def _find_obstacles_of_vm(state: DiskState) -> Iterator[str]:
    if state.is_running and state.type == "volume":
        # libvirt would leave the definition as it is when it switches the running VM.
        yield "the definition names it as a volume of a pool; stop the VM first"
    if state.has_other_live:
        yield "the running VM has another disk at its target; stop the VM first"
    if state.snapshots:
        yield (
            f"the VM has snapshots ({', '.join(state.snapshots)}), which go back to its present "
            "file; delete them first (virt.delete_snapshots)"
        )
    if state.checkpoints:
        yield (
            "the VM has checkpoints, of incremental backups mostly, which do not go into the new "
            "file; delete them first (virsh checkpoint-delete)"
        )
    if state.is_saved:
        yield (
            "the VM has a saved state, which goes on with its present file; start the VM first, "
            "and stop it if you like"
        )
    if state.busy_targets:
        yield (
            f"libvirt works on {', '.join(state.busy_targets)} (virsh blockjob); wait until that "
            "is over, or abort it"
        )


def needed_mib(size_bytes: int) -> int:
    """Return the MiB that a disk may take."""
    return -(-size_bytes // MIB)


def find_lack_of_room(state: RoomState) -> str | None:
    """Return why there is no room for a disk; None if there is."""
    wanted_mib = needed_mib(state.size_bytes)
    if state.stock is not None and wanted_mib > state.left_mib:
        return (
            f"{wanted_mib} MiB of {state.stock} wanted, {max(0, state.left_mib)} MiB free to "
            "promise"
        )
    if state.allocated_bytes > state.free_bytes - state.reserve_bytes:
        return (
            f"it takes {human(state.allocated_bytes)} in {state.folder}, and "
            f"{human(state.free_bytes)} are free there, of which {human(state.reserve_bytes)} are "
            "kept for VMs (virt:disk_reserve_mib)"
        )
    return None
