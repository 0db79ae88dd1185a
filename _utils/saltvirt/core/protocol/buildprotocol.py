"""The protocol of a build on a VM's host; pure, as :mod:`saltvirt.core.protocol.moveprotocol`."""

from saltvirt.core.protocol.effects import Effects

# Phases in the record of a build; a complete one is undone if its VM cannot be started.
MAKING, DEFINING, COMPLETE, UNDOING = "making", "defining", "complete", "undoing"
# The effect that removes the record of a build or a move.
FORGET = "forget"

# An interruption is a failure, too; GeneratorExit, which ends an abandoned part, is not.
_FAILURES = (Exception, KeyboardInterrupt, SystemExit)


def build(start: bool) -> Effects:
    """
    Make a VM's files, define it, and start it.

    On a failure, ``undo`` removes what was made so far, the definition first.
    """
    yield "begin", MAKING
    try:
        yield ("make",)
        yield "enter", DEFINING
        yield ("define",)
        yield "enter", COMPLETE
        if start:
            yield ("start",)
    except _FAILURES:
        yield ("undo",)
        yield ("end",)
        raise
    yield ("end",)


def settle_build(phase: str, *, is_defined: bool) -> str:
    """
    Return the effect for the record of a build that died: ``forget`` or ``undo``.

    A defined VM is complete, as all its files were made before, and may have been used since: it is
    never undone.
    """
    return FORGET if is_defined or phase == COMPLETE else "undo"
