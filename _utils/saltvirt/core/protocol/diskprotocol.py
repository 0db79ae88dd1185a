"""
The protocol of a disk's move: the disk of a VM goes into another file on the same host.

It is pure, as :mod:`saltvirt.core.protocol.moveprotocol`. Before the VM uses the new file, a move
that was cut off is undone; from then on it is finished. Which of the two is read from libvirt, and
not from the record alone: libvirt switches the running VM, whether this project's job lives or not.
Until both the running VM and its definition name the new file, and it was read back, the old file
stays where it is.
"""

from dataclasses import dataclass

from saltvirt.core.protocol.effects import Effects

# The purpose of the record, and its phases.
PURPOSE = "diskmove"
COPYING, SWITCHING, MOVED = "copying", "switching", "moved"
# What a VM has at the target of the disk: the old file, the new one, or something else.
OLD, NEW, OTHER = "old", "new", "other"
# How an interrupted move is settled.
UNDO, FINISH, PUT_AWAY, FORGET = "undo", "finish", "put away", "forget"

# An interruption is a failure, too; GeneratorExit, which ends an abandoned part, is not.
_FAILURES = (Exception, KeyboardInterrupt, SystemExit)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskPlace:
    """
    Where libvirt has the disk; ``live`` and ``definition`` are OLD, NEW or OTHER.

    live
        The disk of the running VM; None if it does not run.
    definition
        The disk of its definition; None if there is no such VM.
    is_mirrored
        Whether libvirt copies the old file into the new one.
    """

    live: str | None
    definition: str | None
    is_mirrored: bool = False


def decide(phase: str, place: DiskPlace) -> str:
    """
    Return how a move that was cut off is settled.

    The file that the VM writes to decides: that of the running VM, else that of its definition.
    FORGET leaves both files as they are: an operator has changed the disk meanwhile.
    """
    if phase == MOVED:
        return FORGET if OLD in (place.live, place.definition) else PUT_AWAY
    current = place.definition if place.live is None else place.live
    if current == OLD:
        return UNDO
    # A definition that was changed by hand while the copy was half may name half a file.
    is_switched = phase == SWITCHING or place.live is not None
    return FINISH if current == NEW and is_switched else FORGET


def move() -> Effects:
    """Move a disk; after a failure, undo the move, or finish it if the VM uses the new file."""
    phase = COPYING
    yield "begin", phase
    try:
        yield ("make",)
        yield ("copy",)
        phase = SWITCHING
        yield "enter", phase
        yield ("switch",)
    except _FAILURES as error:
        step = yield from settle(phase)
        # An answer of libvirt may have been lost; but an interrupted caller waits for an error.
        if step != FINISH or not isinstance(error, Exception):
            raise
        return
    yield from _finish()


def settle(phase: str) -> Effects:
    """Settle a move that was cut off in a phase; return how. An error leaves the record."""
    place = yield ("look",)
    step = decide(phase, place)
    if step == FINISH:
        yield from _finish()
        return step
    if step == UNDO:
        if place.is_mirrored:
            yield ("abort",)
        if place.definition == NEW:
            yield ("restore",)
        # After a loss of power the new file may have what was written last.
        yield "remove", phase != COPYING
    elif step == PUT_AWAY:
        yield ("put_away",)
    yield ("end",)
    return step


def _finish() -> Effects:
    """Put the old file away, once the running VM and its definition have the new one."""
    yield ("define",)
    yield ("check",)
    yield "enter", MOVED
    yield ("put_away",)
    yield ("end",)
