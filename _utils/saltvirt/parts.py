"""
Parts of a protocol: generators of effects, which hands do, and what they are decided by.

The protocol itself is :mod:`saltvirt.protocol`.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from saltvirt.movefacts import Noted
from saltvirt.wire import said_with

# What the source of a move notes, and what its target does; see saltvirt.protocol.
SOURCE_PHASES = ("planned", "sending", "handing", "leaving", "cancelled")
TARGET_PHASES = ("preparing", "ready", "arrived", "refused")
Effects = Generator[tuple[Any, ...], Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRecord:
    """The record that a part begins from: its token and its phase."""

    token: str
    phase: str


def _required_field(default: Any) -> Any:
    """Return a field that a host always tells, whatever it usually is."""
    return field(default=default, metadata={"is_required": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """
    What the source of a move says of it.

    phase
        Of the departure with the move's token; None if there is none.
    is_live, is_moving
        Whether a job of ours is at it, and whether libvirt is.
    is_cut
        Whether post-copy has failed, so that the VM needs both hosts until it goes on.
    has
        Whether the VM is defined there, with all its files.
    has_files
        Whether a file is there that is removed when the VM has left; None if that is not told, and
        files must be expected.
    stays
        Whether the VM runs there after a move of a running VM has failed.
    is_handed
        Whether libvirt says that it has moved a running VM: its disks there are newer then.
    """

    phase: Annotated[str, SOURCE_PHASES] | None = _required_field(None)
    is_live: bool = _required_field(False)
    is_moving: bool = _required_field(False)
    # A host of the release before does not tell it.
    is_cut: bool = False
    has: bool = _required_field(False)
    has_files: bool | None = said_with("has_files")
    stays: bool = _required_field(False)
    is_handed: bool = _required_field(False)

    @property
    def is_busy(self) -> bool:
        """Whether nothing can be done there as long as this lasts."""
        return self.is_live or self.is_moving or self.is_cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """
    What the target of a move says of it.

    phase
        Of the arrival with the move's token; None if there is none.
    is_live, is_arriving
        Whether a job of ours is at it, and whether the VM is just coming by libvirt.
    is_cut
        Whether it cannot come without memory that its source had when post-copy failed.
    has
        Whether the VM is defined there, and not only arriving.
    has_disks
        Whether all files of its disks are there: those of its definition, or without one those that
        the source has noted. None if the target was not asked for them.
    is_empty
        Whether nothing has been written to the files that were made there, or none is there.
    """

    phase: Annotated[str, TARGET_PHASES] | None = _required_field(None)
    is_live: bool = _required_field(False)
    is_arriving: bool = _required_field(False)
    is_cut: bool = False
    has: bool = _required_field(False)
    has_disks: bool | None = said_with("has_disks")
    is_empty: bool = _required_field(False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """
    What all hypervisors but the two of a move say of its VM.

    has
        Those that have it; not those that only kept its definition.
    leaving, coming
        Those from which it is leaving, and to which it is on its way, by another move that is not
        over: that one decides whether they have it.
    silent
        Those that have not said it, each with why.
    """

    has: Sequence[str] = ()
    leaving: Sequence[str] = ()
    coming: Sequence[str] = ()
    silent: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """
    What a host says of one move, as its source and as its target.

    noted, disks
        The source's: what its target must know, and the files of the disks that go with the VM.
    """

    source: Source
    target: Target
    noted: Noted
    disks: list[str] = field(default_factory=list)


def run(steps: Effects, hands: object) -> Any:
    """Have hands do what a part of the protocol asks for, one after the other."""
    do: Callable[[], Any] = steps.__next__
    while True:
        try:
            name, *args = do()
        except StopIteration as end:
            return end.value
        try:
            answer = getattr(hands, name)(*args)
        except BaseException as error:
            do = _thrower(steps, error)
        else:
            do = _sender(steps, answer)


def _thrower(steps: Effects, error: BaseException) -> Callable[[], Any]:
    return lambda: steps.throw(error)


def _sender(steps: Effects, answer: object) -> Callable[[], Any]:
    return lambda: steps.send(answer)
