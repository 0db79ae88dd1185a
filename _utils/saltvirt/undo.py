"""Undo what was done when a later step fails."""

import logging
import signal
import threading
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


def _at_it(_signum, _frame):
    log.info("told to end once more, while what was begun is undone")


def _end(_signum, _frame):
    # A minion that is stopped may send it twice; the second must not end the undoing.
    signal.signal(signal.SIGTERM, _at_it)
    # No Exception, so that nobody on the way up takes it for an error and goes on.
    raise SystemExit(128 + signal.SIGTERM)


@contextmanager
def on_sigterm():
    """Let a SIGTERM unwind the block, so that its undo steps run; a job dies of it otherwise."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
