"""
The master's orders: which of them were begun here, and which it has given up.

Salt queues jobs: one that is accepted may be begun long after the master has stopped waiting for
it, and has given the VM's name to another. So each order has an id, which is noted before it is
begun, or when the master says that it is not to be.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from saltvirt import files, locks
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument, VirtError

_BEGUN, _REFUSED = "begun", "refused"
# What the master is told of one that was begun: whether it is still being done.
_RUNNING, _OVER = "running", "over"
# No job waits for so long.
_LIFE_S = 7 * 24 * 3600


def _noted(settings: HostSettings, order_id: object) -> Path:
    """Return the file that says what became of an order."""
    if not isinstance(order_id, str) or not re.fullmatch("[0-9a-f]{32}", order_id):
        raise BadArgument("id", f"{order_id!r} is not the id of an order")
    return Path(settings.state_dir) / "orders" / order_id


def _note(path: Path, what: str) -> None:
    for old in path.parent.iterdir():
        if time.time() - old.stat().st_mtime > _LIFE_S:
            old.unlink(missing_ok=True)
    files.write(path, what.encode())
    # The folder itself may be new.
    files.sync_folder(path.parent.parent)


@contextmanager
def begun(settings: HostSettings, order_id: str) -> Iterator[None]:
    """Note that an order is begun, and hold its lock meanwhile; raise if it is not to be begun."""
    path = _noted(settings, order_id)
    with locks.held(path.with_suffix(".lock"), wait=False) as handle:
        if handle is None or path.exists():
            raise VirtError("the master has given this order up, or it was begun before")
        _note(path, _BEGUN)
        yield


def refuse(settings: HostSettings, order_id: str) -> str:
    """Note that an order is never begun: ``refused``; or return ``running`` or ``over``."""
    path = _noted(settings, order_id)
    with locks.held(path.with_suffix(".lock"), wait=False) as handle:
        if handle is None:
            return _RUNNING
        if path.exists():
            return _OVER if path.read_text() == _BEGUN else _REFUSED
        _note(path, _REFUSED)
        return _REFUSED
