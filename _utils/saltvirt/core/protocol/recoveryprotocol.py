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
    error, has_left = None, None
    yield ("order",)
    try:
        yield ("open",)
        yield ("prepare",)
        yield ("send",)
        # Each host refuses requests out of turn, so no look is needed as long as all goes well.
        for step in (moveprotocol.ARRIVE, moveprotocol.FINISH, moveprotocol.END):
            yield (step,)
            has_left = True if step == moveprotocol.FINISH else has_left
        yield ("close",)
    except _FAILURES as exc:
        # An interrupted move is settled, too; the caller then raises the error.
        error = exc
    else:
        return moveprotocol.DONE, True, None
    step, is_moved = yield from settle()
    return step, has_left if is_moved is None else is_moved, error


def settle() -> Effects:
    """
    Bring a move in any state to its end.

    Returns ``(DONE, WAIT, KEEP or GONE_ON, whether the VM has moved)``; the latter is None if that
    was settled before.
    """
    # By the step and the target's phase: after progress a step may be tried again.
    errors_by_attempt: dict[tuple[str, str | None], Exception] = {}
    is_moved, is_whole = None, False
    while True:
        target, step = yield from _look(is_whole)
        if step == moveprotocol.DONE:
            yield ("close",)
        if step in (moveprotocol.DONE, moveprotocol.WAIT, moveprotocol.KEEP, moveprotocol.GONE_ON):
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
            is_whole = is_whole or step == moveprotocol.ARRIVE
            is_moved = _MOVED.get(step, is_moved)


def _look(is_whole: bool) -> Effects:
    """Return the target's answer, and the next step."""
    while True:
        source = yield ("look_at_source",)
        target = yield ("look_at_target",)
        step = (
            moveprotocol.next_step(source, target)
            if is_whole
            else _next_step_if_whole(source, target)
        )
        if not moveprotocol.asks_others(source, target, step):
            return target, step
        third_hosts = yield ("look_at_third_hosts",)
        # The VM may have been moved there, or from there, by hand while the others were asked.
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
