"""
What the two hosts of a move have on record of it, and what one tells the other.

A default stands for what a record does not say (yet): one of an older release, or of an earlier
phase. What is None is not written either.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt.wire import said_with


@dataclass(frozen=True, slots=True, kw_only=True)
class DepartureFacts:
    """
    What the source of a move has noted.

    target
        The host that takes the VM, or its libvirt's URI.
    was_running, state
        How the VM was when the move began.
    autostart
        Whether it starts with its host, as of when it was last looked at.
    leaves
        Whether nothing of the VM stays, not even its definition.
    paths
        The files that are removed when it has left.
    disks
        ``[target, path, how it moves]`` of each, as they were when the move began.
    digests, signatures
        Of the files that were sent, by their paths.
    sizes
        How big its disks are to its guest, in bytes by their targets.
    snapshots
        The names of its snapshots, which the other host's libvirt is told of; None without any.
    is_by_hand
        Whether nobody of ours is on the target, who would have its definition on the disk there.
    """

    uuid: str
    target: str
    was_running: bool
    autostart: bool
    leaves: bool
    paths: list[str]
    state: str | None = said_with("state")
    disks: list[list[str]] | None = said_with("disks")
    digests: dict[str, str] | None = said_with("digests")
    signatures: dict[str, list[int]] | None = said_with("signatures")
    sizes: dict[str, int] | None = said_with("sizes")
    snapshots: list[str] | None = said_with("snapshots")
    is_by_hand: bool | None = said_with("is_by_hand")

    @property
    def noted(self) -> "Noted":
        """What its target must know to tell whether the VM has come as it was sent."""
        return Noted(
            digests=self.digests,
            autostart=self.autostart,
            leaves=self.leaves,
            was_running=self.was_running,
            snapshots=self.snapshots,
        )

    @property
    def own_disks(self) -> list[str]:
        """The files of its disks that go with it; none if they were not noted."""
        return [path for _target, path, method in self.disks or () if method in ("copy", "push")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalFacts:
    """
    What the target of a move has noted.

    uuid, source
        None in a record of a move that was begun before there were records.
    sizes
        How big the files are that its source sends, in bytes by their paths.
    virtual
        ``[format, bytes to its guest]`` of the disks that libvirt copies, by their paths.
    paths
        The files that were made here, or are about to be.
    images
        Where the images are that are sent first, by their digests.
    folders
        The folders that the source may write to.
    untouched
        The signatures of the files as they were made, by their paths.
    autostart
        Whether it started with its source when the move began.
    """

    uuid: str | None
    source: str | None
    was_running: bool
    sizes: dict[str, int | None]
    virtual: dict[str, list[Any]] | None = said_with("virtual")
    paths: list[str]
    images: dict[str, str]
    folders: list[str]
    vcpus: int
    memory_mib: int
    disk_mib: int
    affinity: list[str]
    anti_affinity: list[str]
    untouched: dict[str, list[int]] | None = said_with("untouched")
    autostart: bool | None = said_with("autostart")


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """What the source of a move tells its target of it; all is None if it has it not on record."""

    digests: dict[str, str] | None = said_with("was_running")
    autostart: bool | None = said_with("was_running")
    leaves: bool | None = said_with("was_running")
    was_running: bool | None = said_with("was_running")
    snapshots: list[str] | None = said_with("snapshots")
    said: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    """What this was read from; the target is told just that. None of a record of this host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvacuatedFacts:
    """
    What a host that was emptied has noted of a VM that was its own.

    hosts
        Those that evacuations have put it on, one after the other.
    uuid
        The VM's.
    proof
        By which the master knows the note for its own; see saltvirt.fleet.proofs.
    """

    hosts: list[str]
    uuid: str | None = said_with("uuid")
    proof: str | None = said_with("proof")


def cut_postcopy_message(name: str, target: str) -> str:
    """Return what is said of a VM whose post-copy was cut, and how that goes on."""
    return (
        f"it runs on {target}, with memory that its source alone has, so stop it on neither; when "
        "they reach each other again, on the source: virsh migrate --live --p2p --tls --postcopy "
        f"--postcopy-resume {shlex.quote(name)} qemu+tls://{target}/system"
    )


def lost_half_message(name: str, target: str, *, is_source: bool) -> str:
    """
    Return what is said of a VM whose post-copy was cut, and of which one host has lost its half.

    is_source
        Whether that is the source. What is left of the guest is on the other, and in its way.
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
        "has "
        f"written is on {target}. Have that kept: virsh dumpxml --migratable --security-info "
        f"{quoted_name} >FILE where it is left, {steps}; then salt-run virt.settle {quoted_name} "
        "and salt-run "
        f"virt.start {quoted_name}"
    )
