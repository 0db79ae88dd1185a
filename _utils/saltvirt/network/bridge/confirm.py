"""Undo a change of the network unless the master is reached over it in time."""

import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from saltvirt.core import undo
from saltvirt.core.errors import VirtError
from saltvirt.network.bridge import bridgeplan, links
from saltvirt.network.bridge.snapshot import Snapshot
from saltvirt.network.managers.change import Change

log = logging.getLogger(__name__)
_Rollback = tuple[Snapshot, Collection[str], Change]
_KEEP = b"k"
_ATTEMPTS = 3
_AGAIN_S = 0.5


def roll_back(snapshot: Snapshot, names: Collection[str], change: Change) -> None:
    """Roll these links back to their snapshot, and their manager to its former state."""
    failed = _without_error(change.before_links, is_rollback=True)
    failed = _without_error(settle, lambda: _roll_links_back(snapshot, names)) or failed
    failed = _without_error(change.after_links, is_rollback=True) or failed
    if failed:
        raise failed


def _roll_links_back(snapshot: Snapshot, names: Collection[str]) -> None:
    links.roll_back(bridgeplan.operations(links.read(names), snapshot))


def settle(change_links: Callable[[], object]) -> None:
    """Call ``change_links``; repeat it if it fails, as the network manager changes links too."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            change_links()
            return
        except VirtError:
            if not attempts_left:
                raise
            time.sleep(_AGAIN_S)


def _without_error(step: Callable[..., object], *args: Any, **words: Any) -> Exception | None:
    """Run a step of the rollback; return its error, so that the following steps run as well."""
    try:
        step(*args, **words)
    except Exception as exc:  # no error may keep the links from coming back
        return exc
    return None


@contextmanager
def run_watched(
    snapshot: Snapshot, names: Collection[str], change: Change, timeout_s: float
) -> Iterator[None]:
    """
    Run the block under a watchdog; roll back if it raises, is killed or takes too long.

    change
        The change of the network manager's files and state that the block makes.
    timeout_s
        After this many seconds the watchdog acts on its own, even if the block still runs.
    """
    inbox, outbox = os.pipe()
    _spawn(inbox, outbox, timeout_s, (snapshot, names, change))
    os.close(inbox)
    try:
        yield
    except BaseException:
        try:
            with undo.undisturbed():
                roll_back(snapshot, names, change)
        except Exception as exc:
            # The watchdog still runs, and tries again.
            log.error("the network could not be put back at once: %s", exc)
            os.close(outbox)
            raise
        _dismiss(outbox)
        raise
    _dismiss(outbox)


def _dismiss(outbox: int) -> None:
    os.write(outbox, _KEEP)
    os.close(outbox)


def _spawn(inbox: int, outbox: int, timeout_s: float, rollback: _Rollback) -> None:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            os.close(outbox)
            _watch(inbox, timeout_s, rollback)
    finally:
        # Neither process may ever return into Salt's code.
        os._exit(0)


def _watch(inbox: int, timeout_s: float, rollback: _Rollback) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Not SIG_IGN: a DHCP client started here would inherit it.
        signal.signal(number, lambda *_: None)
    null_device = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null_device, standard)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor != inbox:
            _close(descriptor)
    ready, _none, _nothing = select.select([inbox], [], [], timeout_s)
    if ready and os.read(inbox, 1) == _KEEP:
        return
    for _attempt in range(_ATTEMPTS):
        try:
            roll_back(*rollback)
            return
        except Exception:
            time.sleep(_AGAIN_S)


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:  # the descriptor of the listing itself
        return


# The watchdog acts only after the job's own limits have passed.
_GRACE_S = 90


class MasterUnreachable(VirtError):
    """The master cannot be reached over the new network; everything was put back."""


def master_address(opts: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return ``(address, port)`` of the minion's master, None if it has none."""
    if opts.get("file_client") == "local" and not opts.get("master_uri"):
        return None
    uri = opts.get("master_uri") or ""
    address, _colon, port = uri.removeprefix("tcp://").rpartition(":")
    if address and port.isdigit():
        return address.strip("[]"), int(port)
    master = opts.get("master")
    if not isinstance(master, str):
        return None
    return master, int(opts.get("master_port", 4506))


def is_reached(address: tuple[str, int], timeout_s: float) -> bool:
    """Return whether the master accepts a connection within ``timeout_s`` seconds."""
    deadline = time.monotonic() + timeout_s
    while (remaining_s := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection(address, timeout=min(2, remaining_s)):
                return True
        except OSError:
            time.sleep(min(0.3, remaining_s))
    return False


def refuse_unconfirmable(opts: Mapping[str, Any], limit_s: float) -> None:
    """Raise MasterUnreachable if the master cannot be reached even before the change."""
    master = master_address(opts)
    if master and not is_reached(master, limit_s):
        raise MasterUnreachable(
            f"the master {master[0]} cannot be reached before anything is changed, "
            "so nothing could be confirmed; nothing was changed"
        )


def confirm(opts: Mapping[str, Any], limit_s: float, condition: str) -> None:
    """Raise MasterUnreachable, which names ``condition``, if the master is not reached in time."""
    master = master_address(opts)
    if master and not is_reached(master, limit_s):
        raise MasterUnreachable(
            f"the master {master[0]} cannot be reached {condition} within {limit_s} s; "
            "links, addresses, routes and files are as they were"
        )


@contextmanager
def watch_change(
    old_snapshot: Snapshot, names: Collection[str], change: Change, limit_s: float
) -> Iterator[None]:
    """Run a block that changes the network under a watchdog; a SIGTERM undoes the change."""
    with (
        undo.on_signals(),
        run_watched(old_snapshot, names, change, 2 * limit_s + _GRACE_S),
    ):
        yield
