"""
The master's orders: which this host has begun, and which the master has given up.

Salt queues jobs: a job may begin long after the master stopped waiting for it and gave the VM's
name to another VM. So each order has an id, which is recorded before the order begins, or when the
master gives the order up.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from saltvirt.core import files, locks
from saltvirt.core.errors import BadArgument, VirtError
from saltvirt.core.options.config import HostSettings

_BEGUN, _REFUSED = "begun", "refused"
# Our answers to the master about an order that was begun.
_RUNNING, _OVER = "running", "over"
# At least this many of the last ids are kept, and at most twice as many.
_KEPT = 5000


def _home(settings: HostSettings) -> Path:
    return Path(settings.state_dir) / "orders"


def _check_id(order_id: object) -> str:
    if not isinstance(order_id, str) or not re.fullmatch("[0-9a-f]{32}", order_id):
        raise BadArgument("id", f"{order_id!r} is not the id of an order")
    return order_id


def _read_state(home: Path, order_id: str) -> str | None:
    """Return the recorded state of an order, None if there is none."""
    for folder in ("new", "old"):
        try:
            return (home / folder / order_id).read_text()
        except FileNotFoundError:
            continue
    return None


def _note(home: Path, order_id: str, state: str) -> None:
    """Record an order's state; old ids are dropped by count, as the clock may be wrong."""
    with locks.hold_lock(home / "notes.lock"):
        try:
            _write(home, order_id, state)
        except OSError as exc:
            raise files.write_error(f"cannot note the master's order in {home}", exc) from exc


def _write(home: Path, order_id: str, state: str) -> None:
    new_folder, old_folder = home / "new", home / "old"
    if new_folder.exists() and sum(1 for _ in new_folder.iterdir()) >= _KEPT:
        shutil.rmtree(old_folder, ignore_errors=True)
        new_folder.rename(old_folder)
    new_folder.mkdir(mode=0o700, exist_ok=True)
    files.write(new_folder / order_id, state.encode())
    # The folders may be new, too.
    files.sync_folder(home)
    files.sync_folder(home.parent)


@contextmanager
def begin_order(settings: HostSettings, order_id: str) -> Iterator[None]:
    """Record that an order begins, and hold its lock; raise VirtError if it must not begin."""
    home, order_id = _home(settings), _check_id(order_id)
    with locks.hold_lock(home / f"{order_id}.lock", wait=False) as handle:
        if handle is None or _read_state(home, order_id):
            raise VirtError("the master has given this order up, or it was begun before")
        _note(home, order_id, _BEGUN)
        yield


def refuse_order(settings: HostSettings, order_id: str) -> str:
    """Record that an order never begins: ``refused``; if it has begun: ``running``, ``over``."""
    home, order_id = _home(settings), _check_id(order_id)
    with locks.hold_lock(home / f"{order_id}.lock", wait=False) as handle:
        if handle is None:
            return _RUNNING
        state = _read_state(home, order_id)
        if state:
            return _OVER if state == _BEGUN else _REFUSED
        _note(home, order_id, _REFUSED)
        return _REFUSED
