"""
Parts of a protocol as generators of effects, what *hands* perform, and what hosts report.

The protocol itself is :mod:`saltvirt.core.protocol.moveprotocol`.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from saltvirt.core.journal.movefacts import Noted
from saltvirt.core.wire import default_with

# The phases of a move on its source, and on its target; see saltvirt.core.protocol.moveprotocol.
SOURCE_PHASES = ("planned", "sending", "handing", "leaving", "cancelled")
TARGET_PHASES = ("preparing", "ready", "arrived", "refused")
Effects = Generator[tuple[Any, ...], Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRecord:
    """The record that a part begins from: its token and its phase."""

    token: str
    phase: str


def _required_field(default: Any) -> Any:
    """Return a field that must be in a host's answer, although it has a default."""
    return field(default=default, metadata={"is_required": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """
    A source's answer about a move.

    phase
        Of the departure with the move's token; None if there is none.
    is_live, is_moving
        Whether a job of ours works on it, and whether libvirt does.
    is_cut
        Whether post-copy has failed, so that the VM needs both hosts until it goes on.
    has
        Whether the VM is defined there, with all its files.
    has_files
        Whether files are left that are removed when the VM has left; None means unknown, and files
        must be expected.
    stays
        Whether the VM still runs there after a failed move of a running VM.
    is_handed
        Whether libvirt reports that it has moved a running VM: the target's disks are newer then.
    """

    phase: Annotated[str, SOURCE_PHASES] | None = _required_field(None)
    is_live: bool = _required_field(False)
    is_moving: bool = _required_field(False)
    is_cut: bool = _required_field(False)
    has: bool = _required_field(False)
    has_files: bool | None = default_with("has_files")
    stays: bool = _required_field(False)
    is_handed: bool = _required_field(False)

    @property
    def is_busy(self) -> bool:
        """Whether no step is possible on the source for now."""
        return self.is_live or self.is_moving or self.is_cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """
    A target's answer about a move.

    phase
        Of the arrival with the move's token; None if there is none.
    is_live, is_arriving
        Whether a job of ours works on it, and whether libvirt is receiving the VM.
    is_cut
        Whether the VM cannot arrive without memory that its source had when post-copy failed.
    has
        Whether the VM is defined there, and not only arriving.
    has_disks
        Whether all files of its disks exist there: those of its definition, or without one those
        that the source has recorded. None if the target was not asked for them.
    is_empty
        Whether the files that were made there are unwritten, or missing.
    """

    phase: Annotated[str, TARGET_PHASES] | None = _required_field(None)
    is_live: bool = _required_field(False)
    is_arriving: bool = _required_field(False)
    is_cut: bool = _required_field(False)
    has: bool = _required_field(False)
    has_disks: bool | None = default_with("has_disks")
    is_empty: bool = _required_field(False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThirdHosts:
    """
    The answers of third hosts about the VM of a move.

    has
        Hosts that have it; not those that only kept its definition.
    leaving, coming
        Hosts that it is leaving, and hosts that it is coming to, by another unfinished move: that
        move decides whether they have it.
    silent
        Hosts without an answer, each with the reason.
    """

    has: Sequence[str] = ()
    leaving: Sequence[str] = ()
    coming: Sequence[str] = ()
    silent: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """
    A host's answer about one move, as its source and as its target.

    noted, disks
        The source's: the facts that its target needs, and the files of the disks that go with the
        VM.
    """

    source: Source
    target: Target
    noted: Noted
    disks: list[str] = field(default_factory=list)


def run(steps: Effects, hands: object) -> Any:
    """Have hands perform the effects of a part of a protocol, one after the other."""
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
