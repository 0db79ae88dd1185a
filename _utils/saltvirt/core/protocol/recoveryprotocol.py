"""
The master's parts of :mod:`saltvirt.core.protocol.moveprotocol`: running a move, and settling it.

They are pure, like the protocol.
"""

from saltvirt.core.protocol import moveprotocol
from saltvirt.core.protocol.effects import Effects, Source, Target

# An interruption is a failure, too; GeneratorExit, which ends an abandoned part, is not.
_FAILURES = (Exception, KeyboardInterrupt, SystemExit)


def move() -> Effects:
    """Move a VM; return the result of :func:`settle`, and the error or None."""
    error, was_finished = None, None
    yield ("order",)
    try:
        yield ("open",)
        yield ("prepare",)
        yield ("send",)
        # Each host refuses requests out of turn, so the hosts' phases are asked for only after an
        # error.
        for step in (moveprotocol.ARRIVE, moveprotocol.FINISH, moveprotocol.END):
            yield (step,)
            was_finished = True if step == moveprotocol.FINISH else was_finished
        yield ("close",)
    except _FAILURES as exc:
        # An interrupted move is settled, too; the caller then raises the error.
        error = exc
    else:
        return moveprotocol.DONE, True, None
    step, is_moved = yield from settle()
    return step, was_finished if is_moved is None else is_moved, error


def settle() -> Effects:
    """
    Bring a move in any state to its end.

    Returns ``(DONE, WAIT, KEEP or MOVED_ON, whether the VM has moved)``; the second value is
    None if an earlier command decided it.
    """
    # By the step and the target's phase: after progress a step may be tried again.
    errors_by_attempt: dict[tuple[str, str | None], Exception] = {}
    is_moved, is_arrival_confirmed = None, False
    while True:
        target, step = yield from _look(is_arrival_confirmed)
        if step == moveprotocol.DONE:
            yield ("close",)
        if step in (moveprotocol.DONE, moveprotocol.WAIT, moveprotocol.KEEP, moveprotocol.MOVED_ON):
            return step, is_moved
        attempt = step, target and target.phase
        if attempt in errors_by_attempt:
            raise errors_by_attempt[attempt]
        try:
            yield (step,)
        except Exception as error:
            # The step may have been done, or have decided something: look again.
            errors_by_attempt[attempt] = error
        else:
            is_arrival_confirmed = is_arrival_confirmed or step == moveprotocol.ARRIVE
            is_moved = _MOVED.get(step, is_moved)


def foretell() -> Effects:
    """Return the first step of :func:`settle`; only look."""
    _target, step = yield from _look(is_arrival_confirmed=False)
    return step


def _look(is_arrival_confirmed: bool) -> Effects:
    """Return the target's answer, and the next step."""
    while True:
        source = yield ("look_at_source",)
        target = yield ("look_at_target",)
        step = (
            moveprotocol.next_step(source, target)
            if is_arrival_confirmed
            else _next_step_if_whole(source, target)
        )
        if not moveprotocol.asks_others(source, target, step):
            return target, step
        third_hosts = yield ("look_at_third_hosts",)
        # An operator may have moved the VM to or from the target while the others were asked.
        if (yield ("look_at_target",)) == target:
            return target, moveprotocol.next_step(source, target, third_hosts)


# Whether the VM has moved, by the step that was done.
_MOVED = {
    moveprotocol.FINISH: True,
    moveprotocol.END: True,
    moveprotocol.CANCEL: False,
    moveprotocol.FORGET: False,
}


def _next_step_if_whole(source: Source | None, target: Target | None) -> str:
    """Return the next step; ARRIVE again if its process may have died before it set autostart."""
    step = moveprotocol.next_step(source, target)
    is_new = (
        step == moveprotocol.FINISH and source is not None and source.phase == moveprotocol.HANDING
    )
    return (
        moveprotocol.ARRIVE
        if is_new and target is not None and target.phase == moveprotocol.ARRIVED
        else step
    )
