"""
Put the network back unless somebody says in time that it works.

The guard is a process of its own: it outlives the job that changes the network, so that a job
which is killed, or a minion that can be reached no more, leaves the network as it was.
"""

import logging
import os
import select
import signal
from contextlib import contextmanager

from saltvirt.errors import VirtError
from saltvirt.net import links, plan

log = logging.getLogger(__name__)
_KEEP = b"k"


def put_back(snapshot, names):
    """Bring these links back to a snapshot of them."""
    links.execute(plan.operations(links.read(names), snapshot))


@contextmanager
def watched(snapshot, names, timeout_s):
    """
    Run the block under a guard; put the network back if it raises, is killed or takes too long.

    timeout_s
        After this many seconds the guard acts on its own, even if the block still runs.
    """
    inbox, outbox = os.pipe()
    _spawn(inbox, outbox, snapshot, names, timeout_s)
    os.close(inbox)
    try:
        yield
    except BaseException:
        try:
            put_back(snapshot, names)
        except VirtError as exc:
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


def _spawn(inbox, outbox, snapshot, names, timeout_s):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            os.close(outbox)
            _guard(inbox, snapshot, names, timeout_s)
    finally:
        # Neither process may ever return into Salt's code.
        os._exit(0)


def _guard(inbox, snapshot, names, timeout_s):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nowhere, standard)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor != inbox:
            _close(descriptor)
    ready, _none, _nothing = select.select([inbox], [], [], timeout_s)
    if ready and os.read(inbox, 1) == _KEEP:
        return
    for _attempt in range(3):
        try:
            put_back(snapshot, names)
            return
        except VirtError:
            continue


def _close(descriptor):
    try:
        os.close(descriptor)
    except OSError:  # the folder's own, already closed
        return
