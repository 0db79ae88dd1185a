"""
The protocol of a rename: a VM gets another name on its host, in its guest, and by its key.

It is pure, as :mod:`saltvirt.core.protocol.moveprotocol`. The master records the rename under both
names before anything else, so that no other command takes either name. From then on the guest's key
is accepted under both, so its minion is known by either id. The host is idempotent: it
does the same for a VM that has the new name already. So every unfinished rename is completed by the
same command, and undone by the command with the names exchanged.
"""

from dataclasses import dataclass

from saltvirt.core.journal import recordfacts
from saltvirt.core.protocol.effects import Effects

# The phases of the order: the host may have been asked, and the host has reported that it is done.
RENAMING, RENAMED = recordfacts.RENAMING, recordfacts.RENAMED
# What the next command does first with a recorded rename.
GIVE_UP, GO_ON, COMPLETE = "give up", "go on", "complete"

# An interruption is a failure, too; GeneratorExit, which ends an abandoned part, is not.
_FAILURES = (Exception, KeyboardInterrupt, SystemExit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """
    A recorded rename that is not over.

    phase
        That of the half of the record that has got further.
    was_ordered
        Whether a host may have been asked, so that the VM, or its guest, may have the new name.
    moves_key
        Whether the guest has an accepted key, which goes with the name.
    is_reversed
        Whether the command has the record's names exchanged.
    """

    phase: str
    was_ordered: bool
    moves_key: bool
    is_reversed: bool


def resolve(left: Left) -> str:
    """Return what the next command does first with a recorded rename."""
    if left.phase == RENAMED:
        return COMPLETE
    return GO_ON if left.was_ordered else GIVE_UP


def run(left: Left | None) -> Effects:
    """
    Run the master's command; return whether the VM has the name, False if its host refused.

    An error leaves the record, or none if the command was refused before it began one.
    """
    step = None if left is None else resolve(left)
    if left is not None and step != GO_ON:
        is_complete = step == COMPLETE
        yield from (complete if is_complete else give_up)(moves_key=left.moves_key)
        if is_complete != left.is_reversed:
            return True
    if left is not None and step == GO_ON:
        yield ("give_up_job",)
        return (yield from rename(moves_key=left.moves_key, was_ordered=True))
    moves_key = yield ("check",)
    return (yield from rename(moves_key=moves_key, was_ordered=False))


def rename(*, moves_key: bool, was_ordered: bool) -> Effects:
    """Record a rename and have the host do it; return whether it was done."""
    yield ("begin",)
    if moves_key:
        yield ("accept",)
    if not (yield ("order",)):
        # An earlier attempt may have renamed the guest: both keys stay as long as the record does.
        if not was_ordered:
            yield from give_up(moves_key=moves_key)
        return False
    yield "enter", RENAMED
    yield from complete(moves_key=moves_key)
    return True


def give_up(*, moves_key: bool) -> Effects:
    """End a rename of which no host has done anything."""
    if moves_key:
        yield ("discard_new",)
    # The half of the name that becomes free is the last: until then no other VM has that name.
    yield ("end_old",)
    yield ("end_new",)


def complete(*, moves_key: bool) -> Effects:
    """End a rename that its host has reported as done."""
    yield ("place",)
    if moves_key:
        yield ("discard_old",)
    yield ("end_new",)
    yield ("end_old",)


def rename_on_host(*, has_new_name: bool, seeds: bool) -> Effects:
    """
    Rename a stopped VM, on its host, in a block in which it is not started.

    has_new_name
        Whether the VM has the new name already.
    seeds
        Whether the guest's minion gets the new id.

    The guest comes first: most refusals come from there, before anything was changed. After an
    error it is open what was done.
    """
    if seeds:
        yield "identify", True
    if not has_new_name:
        try:
            yield ("rename",)
        except _FAILURES:
            if seeds:
                yield "identify", False
            raise
    yield ("settle",)
