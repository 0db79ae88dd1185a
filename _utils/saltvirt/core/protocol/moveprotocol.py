"""
The protocol of a move, beside that of a build: which record precedes which effect.

It is pure. A part of it is a generator of effects; *hands* perform them: ``vm.create.host`` and
``migration.host`` on a host, ``migration.master.moveexecutor`` on the master, and in the tests a
checker's, which crash, do not reply and stall at every effect. An unfinished part leaves a record,
and :func:`settle_build` and :func:`next_step` decide how the next command goes on.

A move has one point of no return, the target's *arrived*. Until then only the source may end the
move, by its durable *cancelled*, and after the handover only once the target has *refused*. From
then on the target keeps the VM, and the source removes what it has, files last.
"""

from saltvirt.core.protocol.buildprotocol import COMPLETE as COMPLETE
from saltvirt.core.protocol.buildprotocol import DEFINING as DEFINING
from saltvirt.core.protocol.buildprotocol import FORGET as FORGET
from saltvirt.core.protocol.buildprotocol import MAKING as MAKING
from saltvirt.core.protocol.buildprotocol import UNDOING as UNDOING
from saltvirt.core.protocol.buildprotocol import build as build
from saltvirt.core.protocol.buildprotocol import settle_build as settle_build
from saltvirt.core.protocol.effects import (
    SOURCE_PHASES,
    TARGET_PHASES,
    Effects,
    MoveRecord,
    ThirdHosts,
)
from saltvirt.core.protocol.effects import Source as Source
from saltvirt.core.protocol.effects import Target as Target

# The version of the messages about a move between its two hosts and the master.
WIRE = 1
# The phases on the source of a move. From HANDING on the VM is not started there.
PLANNED, SENDING, HANDING, LEAVING, CANCELLED = SOURCE_PHASES
# The phases on its target. Before ARRIVED the VM is not started there.
PREPARING, READY, ARRIVED, REFUSED = TARGET_PHASES
# Phases in which a host has the VM for certain, or nothing of it; all others are open.
DECIDED = frozenset({CANCELLED, ARRIVED})
LEAVES = frozenset({PLANNED, SENDING, HANDING, LEAVING})

# The next steps of settling: on the source, on the target, or none.
CANCEL, REDEFINE, FINISH = "cancel", "redefine", "finish"
ARRIVE, REFUSE, DROP, END = "arrive", "refuse", "drop", "end"
DONE, WAIT, KEEP, MOVED_ON = "done", "wait", "keep", "gone on"
# The operator alone decides these: a third host has the VM, and neither of the two.
GIVE_WAY, LET_GO = "give_way", "let_go"
ON_SOURCE = (CANCEL, REDEFINE, FINISH, FORGET, GIVE_WAY)
ON_TARGET = (ARRIVE, REFUSE, DROP, END, LET_GO)

# An interruption is a failure, too; GeneratorExit, which ends an abandoned part, is not.
_FAILURES = (Exception, KeyboardInterrupt, SystemExit)


class OutOfTurn(Exception):
    """The record does not allow a request; the message says why."""


def _expect(record: MoveRecord | None, token: str, *phases: str) -> str:
    if record is None or record.token != token:
        raise OutOfTurn("it is not on record here any more; begin again")
    if record.phase not in phases:
        raise OutOfTurn(f"it is {record.phase} here, not {' or '.join(phases)}")
    return record.phase


# A move, on the host that has the VM.


def open_departure(record: MoveRecord | None, token: str) -> Effects:
    """Record that a VM is to leave. A cancelled departure is kept as a proof."""
    if record is not None and record.phase != CANCELLED:
        raise OutOfTurn(f"a move of it is {record.phase} already")
    if record is not None:
        yield "bury", record.token
    yield "begin", token, PLANNED


def send(record: MoveRecord | None, token: str) -> Effects:
    """Send a VM: first the files that libvirt does not move, then libvirt's own migration."""
    _expect(record, token, PLANNED)
    yield "enter", SENDING
    try:
        yield ("push",)
        # The VM's state is checked, and HANDING entered, while no command can start the VM.
        yield ("hold",)
    except _FAILURES:
        yield "enter", CANCELLED
        raise
    try:
        yield ("autostart_off",)
        yield ("migrate",)
    except _FAILURES:
        # A VM that runs here is not on the target, even if the target says otherwise. Else the
        # target decides.
        if (yield ("stays",)):
            yield ("autostart_on",)
            yield "enter", CANCELLED
        raise


def finish(record: MoveRecord | None, token: str) -> Effects:
    """
    Remove what a VM that has arrived still has here, files last.

    ``undefine`` and ``remove`` check the target again, right before they remove anything: the
    record may be old, and the VM may have come back by other means, or the target may have lost it.
    """
    if _expect(record, token, HANDING, LEAVING) == HANDING:
        yield ("look",)
        yield "enter", LEAVING
    yield ("undefine",)
    yield ("remove",)
    yield ("end",)


def cancel(
    record: MoveRecord | None,
    token: str,
    *,
    seen: str | None,
    is_refused: bool,
    is_lost: bool = False,
) -> Effects:
    """
    Record for good that a VM does not leave.

    seen
        The source's phase when this was decided: it may have changed since.
    is_refused
        Whether the target, asked after that, has refused the VM for good, or has no record of it.
    is_lost
        Whether the operator states that the target will never come back with the VM.
    """
    if record is None or record.token != token:
        if seen is not None:
            raise OutOfTurn("it was ended by another command meanwhile")
        yield "bury", token
        return
    # A VM that has arrived on a lost host may still be here, whole.
    other_phases = (LEAVING,) if is_lost else ()
    phase = _expect(record, token, PLANNED, SENDING, HANDING, CANCELLED, *other_phases)
    if phase == HANDING and not is_lost:
        # A refusal before the handover does not count: the target knew too little then.
        yield from _expect_here(is_refused and seen == HANDING)
    if phase == LEAVING:
        yield ("refuse_gone",)
    if phase in (HANDING, LEAVING):
        yield ("autostart_on",)
    if phase != CANCELLED:
        yield "enter", CANCELLED


def _expect_here(is_refused: bool) -> Effects:
    is_sure = is_refused or (yield ("stays",))
    if not is_sure or (yield ("is_handed",)):
        raise OutOfTurn("it was handed over, so the other host decides")


def redefine(record: MoveRecord | None, token: str) -> Effects:
    """Define a VM again on the target, which lost the definition in a crash and has the disks."""
    _expect(record, token, HANDING)
    if not (yield ("is_handed",)):
        raise OutOfTurn("libvirt does not say any more that it has moved; it may have come back")
    yield ("define_there",)


def give_way(record: MoveRecord | None, token: str, *, keeper: str) -> Effects:
    """
    Leave a VM to another host, as the operator decided: its files here stay, and it is not started.

    It is a step of the source, and of the target, where it is called *let go*.
    """
    _expect(record, token, HANDING, LEAVING, PREPARING, READY)
    yield "keep_for", keeper
    yield ("end",)


def forget(record: MoveRecord | None, token: str) -> Effects:
    """Forget a cancelled departure; the target has removed everything."""
    yield "unbury", token
    if record is not None and record.token == token:
        _expect(record, token, CANCELLED)
        yield ("end",)


# A move, on the host that takes the VM.


def prepare(record: MoveRecord | None, token: str) -> Effects:
    """Make the files that receive a VM; return whether images must be sent here first."""
    if record is not None:
        raise OutOfTurn(f"a move of it is {record.phase} already")
    # Before there is a record: files of an earlier move must not be taken for ours.
    yield ("check",)
    yield "begin", token, PREPARING
    return (yield from _make())


def resume(record: MoveRecord | None, token: str) -> Effects:
    """Go on with :func:`prepare` when the images are here."""
    _expect(record, token, PREPARING)
    return (yield from _make())


def _make() -> Effects:
    # Nothing was sent yet that the source does not have, too: sending begins after this answer.
    try:
        is_waiting = yield ("make",)
        if not is_waiting:
            yield "enter", READY
    except _FAILURES:
        yield ("remove",)
        yield ("end",)
        raise
    return is_waiting


def arrive(record: MoveRecord | None, token: str, *, is_handed: bool) -> Effects:
    """
    Check that a VM is here, whole and on the disk; from then on it belongs here.

    is_handed
        Whether the VM ran here already, or its source no longer has it: then it is never given
        back.
    """
    if _expect(record, token, READY, ARRIVED) == READY:
        try:
            yield ("verify",)
        except Exception:
            if not is_handed:
                yield ("refuse_running",)
                yield "enter", REFUSED
            raise
        yield "enter", ARRIVED
    yield ("autostart_on",)


def refuse(record: MoveRecord | None, token: str) -> Effects:
    """Record for good that a VM does not arrive; nothing came that could run."""
    if _expect(record, token, PREPARING, READY, REFUSED) != REFUSED:
        yield ("refuse_running",)
        yield "enter", REFUSED


def drop(record: MoveRecord | None, token: str, *, is_lost: bool = False) -> Effects:
    """
    Remove what was made here for a VM that its source has cancelled, and nothing else.

    is_lost
        Whether the operator states that the source has the VM, though it has arrived here: this
        host was given up while it was unresponsive.
    """
    other_phases = (ARRIVED,) if is_lost else ()
    if _expect(record, token, PREPARING, READY, REFUSED, *other_phases) != PREPARING:
        yield ("undefine",)
    yield ("remove",)
    yield ("end",)


def end(record: MoveRecord | None, token: str) -> Effects:
    """Forget the arrival of a VM that its source has removed."""
    _expect(record, token, ARRIVED)
    yield ("end",)


# A move, on the master; the parts themselves are in saltvirt.core.protocol.recoveryprotocol.


def next_step(
    source: Source | None, target: Target | None, third_hosts: ThirdHosts | None = None
) -> str:
    """
    Return the next step that brings a move to its end.

    source, target
        The hosts' answers; None for an unresponsive host.
    third_hosts
        The answers of all others; None if they have not been asked. See :func:`asks_others`.
    """
    if source is None or source.is_busy:
        return WAIT
    if source.phase in (PLANNED, SENDING) or (source.phase == HANDING and source.stays):
        return CANCEL
    if target is None or target.is_live or target.is_arriving:
        return WAIT
    step = _AFTER[source.phase](source, target)
    if third_hosts is None or not asks_others(source, target, step):
        return step
    return _unless_gone_on(step, target, third_hosts)


def asks_others(source: Source | None, target: Target | None, step: str) -> bool:
    """
    Return whether all other hosts must be asked for the VM before a step.

    The VM may be on a third host: by a move from a target that no longer has a record of this one,
    or by other means.
    """
    if source is None or target is None:
        return False
    if step == KEEP:
        return is_left_alone(source, target)
    is_open = source.phase == HANDING and not source.stays
    is_decided = target.phase in (ARRIVED, REFUSED)
    return is_open and not is_decided and step in (CANCEL, REDEFINE, FINISH, REFUSE, ARRIVE)


def is_left_alone(source: Source, target: Target) -> bool:
    """
    Return whether the source still has what its target must have, and lacks.

    The VM was moved back by other means, or the target was reinstalled. The source may have the
    only copy, so the operator decides.
    """
    if target.has and target.has_disks is not False:
        return False
    if source.phase == LEAVING:
        return source.has or source.has_files is not False
    if source.phase != HANDING or not source.has:
        return False
    if target.phase == ARRIVED:
        return True
    # The VM was handed over, or its definition alone has come: a host has lost the disks since.
    was_there = target.has or source.is_handed
    return target.phase is None and target.has_disks is False and was_there


def _unless_gone_on(step: str, target: Target, third_hosts: ThirdHosts) -> str:
    if third_hosts.has:
        return MOVED_ON
    # The target's record proves that the VM has not moved on from there, unless the VM is missing.
    is_proven = step not in (CANCEL, REDEFINE, KEEP) or (target.phase is not None and step != KEEP)
    is_open = third_hosts.silent or third_hosts.leaving or third_hosts.coming
    return WAIT if is_open and not is_proven else step


def is_stuck(source: Source, target: Target) -> bool:
    """Return whether a VM that failed to arrive is no longer on its source."""
    can_only = target.phase == READY and next_step(source, target) == ARRIVE
    return can_only and not (source.has or source.is_handed)


def _after_handing(source: Source, target: Target) -> str:
    if is_left_alone(source, target):
        return KEEP
    if target.phase == ARRIVED or (target.phase is None and target.has):
        return FINISH
    if source.is_handed:
        return _after_libvirt(target)
    if target.phase != READY:
        return REFUSE if target.phase == PREPARING else CANCEL
    if target.has:
        return ARRIVE
    # A transient VM may have ended there: the files that came may be all that is left.
    return REFUSE if source.has or target.is_empty else KEEP


def _after_libvirt(target: Target) -> str:
    """Return the next step for a VM that has run on the target, as libvirt reports."""
    # The target has no record of a VM that was moved by hand.
    if target.phase not in (READY, None):
        return KEEP
    if target.has:
        return ARRIVE
    return KEEP if target.has_disks is False else REDEFINE


def _after_leaving(source: Source, target: Target) -> str:
    return KEEP if is_left_alone(source, target) else FINISH


def _after_cancelled(_source: Source, target: Target) -> str:
    if target.phase == ARRIVED:
        return KEEP
    return DROP if target.phase else FORGET


def _after_all(source: Source, target: Target) -> str:
    """Return the next step if the source has no record: the move is over, or never began."""
    if target.phase is None:
        return DONE
    if target.phase == ARRIVED:
        return END
    # Either may have the newest disks: the source has lost its record, so there is no proof.
    if source.has and target.has:
        return KEEP
    # Without files on the source, the files that came may be all that is left of the VM.
    if source.has or target.phase == PREPARING or (target.is_empty and not target.has):
        return CANCEL
    return ARRIVE if target.has and target.phase == READY else KEEP


_AFTER = {
    HANDING: _after_handing,
    LEAVING: _after_leaving,
    CANCELLED: _after_cancelled,
    None: _after_all,
}
