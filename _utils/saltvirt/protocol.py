"""
The protocol of a build and of a move: who writes down what before he does what.

It is pure. A part of it is a generator of effects; *hands* do them: ``ops.build`` and
``ops.migration`` on a host, ``fleet.effects`` on the master, and in the tests a checker's, which
crash, fall silent and stall at every one. What a part does not do itself, it leaves on record, and
:func:`settle_build` and :func:`next_step` say how the next command goes on.

A move has one point of no return, the target's *arrived*. Until then only the source may end it,
by its durable *cancelled*, and once it has handed over, only after the target has *refused*; from
then on nobody takes the VM back from the target, and the source removes what it has, files last.
"""

from saltvirt.buildparts import COMPLETE as COMPLETE
from saltvirt.buildparts import DEFINING as DEFINING
from saltvirt.buildparts import FORGET as FORGET
from saltvirt.buildparts import MAKING as MAKING
from saltvirt.buildparts import UNDOING as UNDOING
from saltvirt.buildparts import build as build
from saltvirt.buildparts import settle_build as settle_build
from saltvirt.parts import SOURCE_PHASES, TARGET_PHASES, Effects, Elsewhere, MoveRecord
from saltvirt.parts import Source as Source
from saltvirt.parts import Target as Target

# The version of what the two hosts of a move and the master say to each other of it.
WIRE = 1
# What the source of a move notes. From HANDING on nobody starts the VM there.
PLANNED, SENDING, HANDING, LEAVING, CANCELLED = SOURCE_PHASES
# What its target notes. Before ARRIVED nobody starts the VM there.
PREPARING, READY, ARRIVED, REFUSED = TARGET_PHASES
# A host whose record says this has the VM, or has nothing of it; all others are open.
DECIDED = frozenset({CANCELLED, ARRIVED})
LEAVES = frozenset({PLANNED, SENDING, HANDING, LEAVING})

# What settling does next: on the source, on the target, or nothing.
CANCEL, REDEFINE, FINISH = "cancel", "redefine", "finish"
ARRIVE, REFUSE, DROP, END = "arrive", "refuse", "drop", "end"
DONE, WAIT, KEEP, GONE_ON = "done", "wait", "keep", "gone on"
# What the operator alone decides: another host has the VM, and neither of the two.
GIVE_WAY, LET_GO = "give_way", "let_go"
ON_SOURCE = (CANCEL, REDEFINE, FINISH, FORGET, GIVE_WAY)
ON_TARGET = (ARRIVE, REFUSE, DROP, END, LET_GO)

# An interruption is a failure too; GeneratorExit, which ends a part that nobody runs, is not.
_FAILURES = (Exception, KeyboardInterrupt, SystemExit)


class OutOfTurn(Exception):
    """Somebody asked for what the record does not allow; the message says why."""


def legacy_token(name: str) -> str:
    """Return the token of a move that was begun before there were tokens: it is the VM's own."""
    return f"legacy-{name}"


def _expect(record: MoveRecord | None, token: str, *phases: str) -> str:
    if record is None or record.token != token:
        raise OutOfTurn("it is not on record here any more; begin again")
    if record.phase not in phases:
        raise OutOfTurn(f"it is {record.phase} here, not {' or '.join(phases)}")
    return record.phase


# A move, on the host that has the VM.


def open_departure(record: MoveRecord | None, token: str) -> Effects:
    """Note that a VM is to leave. A departure that was cancelled is kept as a proof of it."""
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
        # Its state is looked at, and HANDING entered, while nobody can start it.
        yield ("hold",)
    except _FAILURES:
        yield "enter", CANCELLED
        raise
    try:
        yield ("autostart_off",)
        yield ("migrate",)
    except _FAILURES:
        # Whoever runs here is not on the target, whatever that says. Of others the target decides.
        if (yield ("stays",)):
            yield ("autostart_on",)
            yield "enter", CANCELLED
        raise


def finish(record: MoveRecord | None, token: str) -> Effects:
    """
    Remove what a VM that has arrived had here alone, files last.

    ``undefine`` and ``remove`` look at the target again, right before they remove anything: the
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
    Note for good that a VM does not leave.

    seen
        The phase that the source was in when this was decided: it may have gone on since.
    is_refused
        Whether the target, asked after that, has refused it for good, or does not know of it.
    is_lost
        Whether the operator says that the target will never come back with the VM.
    """
    if record is None or record.token != token:
        if seen is not None:
            raise OutOfTurn("it was ended by another command meanwhile")
        yield "bury", token
        return
    # What has arrived on a host that is lost may still be here, whole.
    other_phases = (LEAVING,) if is_lost else ()
    phase = _expect(record, token, PLANNED, SENDING, HANDING, CANCELLED, *other_phases)
    if phase == HANDING and not is_lost:
        # Before it was handed over no target knew of it, or it did not know enough.
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
    """Define a VM on the target again, which lost its definition in a crash and has its disks."""
    _expect(record, token, HANDING)
    if not (yield ("is_handed",)):
        raise OutOfTurn("libvirt does not say any more that it has moved; it may have come back")
    yield ("define_there",)


def give_way(record: MoveRecord | None, token: str, *, keeper: str) -> Effects:
    """
    Leave a VM to another host, by its operator's word: what is here stays, and is not started.

    It is a step of the source, and of the target, where it is called *let go*.
    """
    _expect(record, token, HANDING, LEAVING, PREPARING, READY)
    yield "keep_for", keeper
    yield ("end",)


def forget(record: MoveRecord | None, token: str) -> Effects:
    """Forget a cancelled departure, of which the target has removed everything."""
    yield "unbury", token
    if record is not None and record.token == token:
        _expect(record, token, CANCELLED)
        yield ("end",)


# A move, on the host that takes the VM.


def prepare(record: MoveRecord | None, token: str) -> Effects:
    """Make the files that a VM is written to; return whether images must be sent here first."""
    if record is not None:
        raise OutOfTurn(f"a move of it is {record.phase} already")
    # Before anything is on record: what an earlier move has brought must not be taken for ours.
    yield ("check",)
    yield "begin", token, PREPARING
    return (yield from _make())


def resume(record: MoveRecord | None, token: str) -> Effects:
    """Go on with :func:`prepare` when the images have come."""
    _expect(record, token, PREPARING)
    return (yield from _make())


def _make() -> Effects:
    # Nothing was sent yet that is not on the source too: that begins when this was answered.
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
    Look whether a VM is here, whole and on the disk; from then on it belongs here.

    is_handed
        Whether it ran here already, or its source has it no more: then it is never given back.
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
    """Note for good that a VM, of which nothing came that could run, does not arrive."""
    if _expect(record, token, PREPARING, READY, REFUSED) != REFUSED:
        yield ("refuse_running",)
        yield "enter", REFUSED


def drop(record: MoveRecord | None, token: str, *, is_lost: bool = False) -> Effects:
    """
    Remove what was made here for a VM whose source has cancelled, and nothing else.

    is_lost
        Whether the operator says that its source has the VM, though it has arrived: this host was
        given up when it could not be asked.
    """
    other_phases = (ARRIVED,) if is_lost else ()
    if _expect(record, token, PREPARING, READY, REFUSED, *other_phases) != PREPARING:
        yield ("undefine",)
    yield ("remove",)
    yield ("end",)


def end(record: MoveRecord | None, token: str) -> Effects:
    """Forget the arrival of a VM that its source has nothing of any more."""
    _expect(record, token, ARRIVED)
    yield ("end",)


# A move, on the master; the parts themselves are in saltvirt.settling.


def next_step(
    source: Source | None, target: Target | None, third_hosts: Elsewhere | None = None
) -> str:
    """
    Return what is to be done next for a move to come to its end.

    source, target
        What the hosts say; None of one that does not answer.
    elsewhere
        What all others say; None if they have not been asked. See :func:`asks_others`.
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
    Return whether a step must not be done before all other hosts were asked for the VM.

    From a target that has nothing of this move on record any more it may have gone on to a third
    host, and so may one that somebody has moved with other means.
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
    Return whether the source still has what its target must have, and does not have.

    Somebody has moved the VM back by other means, or the target was reinstalled. What the source
    has may be the only copy, so the operator decides.
    """
    if target.has and target.has_disks is not False:
        return False
    if source.phase == LEAVING:
        return source.has or source.has_files is not False
    if source.phase != HANDING or not source.has:
        return False
    if target.phase == ARRIVED:
        return True
    # It was handed over, or its definition alone has come: a host has lost the disks since.
    was_there = target.has or source.is_handed
    return target.phase is None and target.has_disks is False and was_there


def _unless_gone_on(step: str, target: Target, third_hosts: Elsewhere) -> str:
    if third_hosts.has:
        return GONE_ON
    # The target's record proves that the VM has not gone on from there, unless the VM is missing.
    is_proven = step not in (CANCEL, REDEFINE, KEEP) or (target.phase is not None and step != KEEP)
    is_open = third_hosts.silent or third_hosts.leaving or third_hosts.coming
    return WAIT if is_open and not is_proven else step


def is_stuck(source: Source, target: Target) -> bool:
    """Return whether a VM that cannot arrive, as was tried, is not on its source any more."""
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
    # A VM that was kept nowhere has ended there, say: what has come may be all there is of it.
    return REFUSE if source.has or target.is_empty else KEEP


def _after_libvirt(target: Target) -> str:
    """Return what is next for a VM that has run on the target, by libvirt's own word."""
    # The target has nothing on record of a VM that was moved by hand.
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
    """Return what is left to do where the source has no record: it is done, or never began."""
    if target.phase is None:
        return DONE
    if target.phase == ARRIVED:
        return END
    # Either may have the newest disks: the source has lost its record, and nobody else can tell.
    if source.has and target.has:
        return KEEP
    # Without the source's files, those that came may be all there is of the VM.
    if source.has or target.phase == PREPARING or (target.is_empty and not target.has):
        return CANCEL
    return ARRIVE if target.has and target.phase == READY else KEEP


_AFTER = {
    HANDING: _after_handing,
    LEAVING: _after_leaving,
    CANCELLED: _after_cancelled,
    None: _after_all,
}
