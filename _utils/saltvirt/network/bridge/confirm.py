"""Check that the master is reached over a changed network; if not, the change is undone."""

import socket
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from saltvirt.core import undo
from saltvirt.core.errors import VirtError
from saltvirt.network.bridge import watchdog
from saltvirt.network.bridge.snapshot import Snapshot
from saltvirt.network.managers.change import Change

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
        watchdog.run_watched(old_snapshot, names, change, 2 * limit_s + _GRACE_S),
    ):
        yield
