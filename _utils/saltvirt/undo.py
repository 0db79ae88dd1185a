"""Undo what was done when a later step fails."""

import logging
from contextlib import contextmanager

log = logging.getLogger(__name__)


class Steps:
    """The undo actions registered so far, newest last."""

    def __init__(self):
        self._actions = []

    def then(self, action, *args):
        """Register how to undo the step that has just succeeded."""
        self._actions.append((action, args))

    def run(self):
        """Undo everything, newest first; one that fails is logged and the rest go on."""
        while self._actions:
            action, args = self._actions.pop()
            try:
                action(*args)
            except Exception as exc:  # whatever it is, the other steps must still run
                log.error("undo step %s%r failed: %s", action.__name__, args, exc)


@contextmanager
def on_failure():
    """Yield :class:`Steps`; if the block raises anything, undo them and raise it again."""
    steps = Steps()
    try:
        yield steps
    except BaseException:
        steps.run()
        raise
