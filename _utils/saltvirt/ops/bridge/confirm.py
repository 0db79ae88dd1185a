"""Whether the master is reached over a changed network; nothing stays that it is not reached by."""

import socket
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from saltvirt import undo
from saltvirt.errors import VirtError
from saltvirt.net import watchdog
from saltvirt.net.change import Change
from saltvirt.net.snapshot import Snapshot

# The watchdog acts if the job itself did not: after the job's own time has passed.
_GRACE_S = 90


class MasterUnreachable(VirtError):
    """The master cannot be reached over the new network; everything was put back."""


def master_address(opts: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return ``(address, port)`` of the minion's master, None for a minion without one."""
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
    """Return whether the master takes a connection within ``timeout_s`` seconds."""
    deadline = time.monotonic() + timeout_s
    while (remaining_s := deadline - time.monotonic()) > 0:
        try:
            with socket.create_connection(address, timeout=min(2, remaining_s)):
                return True
        except OSError:
            time.sleep(min(0.3, remaining_s))
    return False


def refuse_unconfirmable(opts: Mapping[str, Any], limit_s: float) -> None:
    """Raise MasterUnreachable if nothing could be confirmed, before anything is changed."""
    master = master_address(opts)
    if master and not is_reached(master, limit_s):
        raise MasterUnreachable(
            f"the master {master[0]} cannot be reached before anything is changed, "
            "so nothing could be confirmed; nothing was changed"
        )


def confirm(opts: Mapping[str, Any], limit_s: float, condition: str) -> None:
    """Raise MasterUnreachable if the master is not reached in time; ``how``: over what."""
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
    """Run a block that changes the network under a watchdog, and unwind it at a SIGTERM."""
    with (
        undo.on_signals(),
        watchdog.run_watched(old_snapshot, names, change, 2 * limit_s + _GRACE_S),
    ):
        yield
