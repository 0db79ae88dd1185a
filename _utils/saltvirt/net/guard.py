"""
Put the network back unless somebody says in time that it works.

The guard is a process of its own: it outlives the job that changes the network, so that a job
which is killed, or a minion that can be reached no more, leaves the network as it was, and the
host's manager of networks with what it knew before.
"""

import logging
import os
import select
import signal
import time
from contextlib import contextmanager

from saltvirt.errors import VirtError
from saltvirt.net import links, plan

log = logging.getLogger(__name__)
_KEEP = b"k"
_ATTEMPTS = 3
_AGAIN_S = 0.5


def put_back(snapshot, names, change):
    """Bring these links back to a snapshot of them, and their manager to what it knew."""
    failed = _without_error(change.before_links, is_back=True)
    failed = _without_error(settle, lambda: _links_back(snapshot, names)) or failed
    failed = _without_error(change.after_links, is_back=True) or failed
    if failed:
        raise failed


def _links_back(snapshot, names):
    links.put_back(plan.operations(links.read(names), snapshot))


def settle(change_links):
    """Change links that their manager may change too; what it leaves is brought in order after."""
    for left in reversed(range(_ATTEMPTS)):
        try:
            change_links()
            return
        except VirtError:
            if not left:
                raise
            time.sleep(_AGAIN_S)


def _without_error(step, *given, **words):
    """Take a step of the way back, and return its error: the steps after it are tried as well."""
    try:
        step(*given, **words)
    except Exception as exc:  # whatever it is, the links come back
        return exc
    return None


@contextmanager
def watched(snapshot, names, change, timeout_s):
    """
    Run the block under a guard; put the network back if it raises, is killed or takes too long.

    change
        What the manager of the network is told in the block; see
        :class:`~saltvirt.net.change.Change`.
    timeout_s
        After this many seconds the guard acts on its own, even if the block still runs.
    """
    inbox, outbox = os.pipe()
    _spawn(inbox, outbox, timeout_s, (snapshot, names, change))
    os.close(inbox)
    try:
        yield
    except BaseException:
        try:
            put_back(snapshot, names, change)
        except Exception as exc:
            # The guard, which is still there, tries again on its own.
            log.error("the network could not be put back at once: %s", exc)
            os.close(outbox)
            raise
        _dismiss(outbox)
        raise
    _dismiss(outbox)


def _dismiss(outbox):
    os.write(outbox, _KEEP)
    os.close(outbox)


def _spawn(inbox, outbox, timeout_s, way_back):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            os.close(outbox)
            _guard(inbox, timeout_s, way_back)
    finally:
        # Neither process may ever return into Salt's code.
        os._exit(0)


def _guard(inbox, timeout_s, way_back):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Not SIG_IGN, which a client of DHCP that is started here would inherit for its life.
        signal.signal(number, lambda *_: None)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nowhere, standard)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor != inbox:
            _close(descriptor)
    ready, _none, _nothing = select.select([inbox], [], [], timeout_s)
    if ready and os.read(inbox, 1) == _KEEP:
        return
    for _attempt in range(_ATTEMPTS):
        try:
            put_back(*way_back)
            return
        except Exception:
            time.sleep(_AGAIN_S)


def _close(descriptor):
    try:
        os.close(descriptor)
    except OSError:  # the folder's own, already closed
        return
