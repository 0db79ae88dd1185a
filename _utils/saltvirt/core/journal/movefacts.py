"""
The records of a move on its two hosts, and the facts that one host sends the other.

A default stands for a value that a record does not have yet, in an earlier phase. None is not
written.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt.core.wire import default_with


@dataclass(frozen=True, slots=True, kw_only=True)
class DepartureFacts:
    """
    The record of a move on its source.

    target
        The host that takes the VM, or its libvirt's URI.
    was_running, state
        The VM's state when the move began.
    autostart
        Whether the VM starts with its host, as last seen.
    leaves
        Whether nothing of the VM stays, not even its definition.
    paths
        The files to remove when the VM has left.
    disks
        ``[target, path, how it moves]`` of each disk when the move began.
    digests, signatures
        Of the files that were sent, by their paths.
    sizes
        The virtual sizes of the disks, in bytes by their targets.
    snapshots
        The names of the VM's snapshots, which are made known to the target's libvirt; None without
        any.
    is_by_hand
        Whether the target runs no Salt Virt, which would sync the definition to the disk there.
    """

    uuid: str
    target: str
    was_running: bool
    autostart: bool
    leaves: bool
    paths: list[str]
    state: str | None = default_with("state")
    disks: list[list[str]] | None = default_with("disks")
    digests: dict[str, str] | None = default_with("digests")
    signatures: dict[str, list[int]] | None = default_with("signatures")
    sizes: dict[str, int] | None = default_with("sizes")
    snapshots: list[str] | None = default_with("snapshots")
    is_by_hand: bool | None = default_with("is_by_hand")

    @property
    def noted(self) -> "Noted":
        """The facts by which the target checks that the VM has arrived as it was sent."""
        return Noted(
            digests=self.digests,
            autostart=self.autostart,
            leaves=self.leaves,
            was_running=self.was_running,
            snapshots=self.snapshots,
        )

    @property
    def own_disks(self) -> list[str]:
        """The disk files that move with the VM; none if the disks were not recorded."""
        return [path for _target, path, method in self.disks or () if method in ("copy", "push")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalFacts:
    """
    The record of a move on its target.

    source
        The host that the VM comes from; None if the caller named none.
    sizes
        The sizes of the files that the source sends, in bytes by their paths.
    virtual
        ``[format, virtual bytes]`` of the disks that libvirt copies, by their paths.
    paths
        The files that were made here, or are about to be.
    images
        The paths of the images that are sent first, by their digests.
    folders
        The folders that the source may write to.
    untouched
        The signatures of the files when they were made, by their paths.
    autostart
        Whether the VM started with its source host when the move began.
    """

    uuid: str
    source: str | None
    was_running: bool
    sizes: dict[str, int | None]
    virtual: dict[str, list[Any]] | None = default_with("virtual")
    paths: list[str]
    images: dict[str, str]
    folders: list[str]
    vcpus: int
    memory_mib: int
    disk_mib: int
    affinity: list[str]
    anti_affinity: list[str]
    untouched: dict[str, list[int]] | None = default_with("untouched")
    autostart: bool | None = default_with("autostart")


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """The facts of a move that its source tells its target; all None if it has no record."""

    digests: dict[str, str] | None = default_with("was_running")
    autostart: bool | None = default_with("was_running")
    leaves: bool | None = default_with("was_running")
    was_running: bool | None = default_with("was_running")
    snapshots: list[str] | None = default_with("snapshots")
    said: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    """What this was read from; the target is told just that. None of a record of this host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvacuatedFacts:
    """
    The record of an emptied host about a VM that was its own.

    hosts
        The hosts that evacuations moved the VM to, in order.
    uuid
        The VM's.
    proof
        The proof that the master wrote the record; see saltvirt.migration.master.notesignatures.
    """

    hosts: list[str]
    uuid: str | None = default_with("uuid")
    proof: str | None = default_with("proof")


def cut_postcopy_message(name: str, target: str) -> str:
    """Return the message about a VM with a cut post-copy, and how to go on."""
    return (
        f"it runs on {target}, with memory that its source alone has, so stop it on neither; when "
        "they reach each other again, on the source: virsh migrate --live --p2p --tls --postcopy "
        f"--postcopy-resume {shlex.quote(name)} qemu+tls://{target}/system"
    )


def lost_half_message(name: str, target: str, *, is_source: bool) -> str:
    """
    Return the message about a VM with a cut post-copy of which one host has lost its half.

    is_source
        Whether the source has lost it. The other host still has its half, which is in the way.
    """
    quoted_name = shlex.quote(name)
    losing_side = "its source" if is_source else target
    define_command = f"virsh define FILE on {target}"
    destroy_command = f"virsh destroy {quoted_name} on {target if is_source else 'the source'}"
    steps = (
        f"{destroy_command}, {define_command}"
        if is_source
        else f"{define_command}, {destroy_command}"
    )
    return (
        f"{losing_side} has lost the memory that it alone had, so the guest cannot go on; what it "
        f"has written is on {target}. Have that kept: virsh dumpxml --migratable --security-info "
        f"{quoted_name} >FILE where it is left, {steps}; then salt-run virt.settle {quoted_name} "
        f"and salt-run virt.start {quoted_name}"
    )
