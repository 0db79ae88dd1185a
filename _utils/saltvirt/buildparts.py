"""The parts of :mod:`saltvirt.protocol` that build a VM, on its host; they are pure, as it is."""

from saltvirt.parts import Effects

# What a host notes of a VM that it builds; a complete one is undone if it cannot be started.
MAKING, DEFINING, COMPLETE, UNDOING = "making", "defining", "complete", "undoing"
# What is done with a record that is not needed any more, also with that of a move.
FORGET = "forget"

# An interruption is a failure too; GeneratorExit, which ends a part that nobody runs, is not.
_FAILURES = (Exception, KeyboardInterrupt, SystemExit)


def build(start: bool) -> Effects:
    """
    Make a VM's files, define it, and start it.

    ``undo`` takes back what was made so far, the definition first.
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
    Return what is done with the record of a builder that died: ``forget`` or ``undo``.

    What is defined is complete, as all its files were made before, and somebody may have used it
    since: it is never undone.
    """
    return FORGET if is_defined or phase == COMPLETE else "undo"
