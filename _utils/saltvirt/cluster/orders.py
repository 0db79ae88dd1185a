"""
Orders: what this master has begun for a VM, at most one for each name.

An order is a record under the VM's name (see :mod:`saltvirt.core.journal.records`). Its phases, and
what exists in each:

==========  =====================================================================================
placing     nothing; the master looks for a host
keyed       the recorded key may be accepted; no host was asked
ordered     the recorded host was asked to build the VM
built       that host reported the VM as complete
moving      a move; the hosts know what exists, and settle it
removing    the recorded host was asked to remove the VM; the recorded key goes last
renaming    the recorded host may have been asked to rename the VM; both names have the record
renamed     that host has renamed it; the former name's key goes
restoring   the recorded host was asked to bring the VM back; the recorded key is accepted last
==========  =====================================================================================
"""

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from saltvirt.cluster import renameorders
from saltvirt.core import wire
from saltvirt.core.errors import NameTaken
from saltvirt.core.journal import recordfacts, records
from saltvirt.core.journal.recordfacts import MoveOrderFacts, OrderFacts

PURPOSE = "order"
_END_S = 3
PLACING, KEYED, ORDERED, BUILT = "placing", "keyed", "ordered", "built"
MOVING, REMOVING = recordfacts.MOVING, "removing"
_WORK_BY_PHASE = {
    MOVING: "moved",
    REMOVING: "removed",
    "restoring": "brought back",
    **dict.fromkeys(renameorders.PHASES, "renamed"),
}


def folder(opts: Mapping[str, Any]) -> Path:
    """Return the folder of this master's records."""
    return Path(opts["cachedir"]) / "salt-virt" / "records"


@contextmanager
def opened(
    opts: Mapping[str, Any], name: str, *, renames: bool = False
) -> Iterator[records.LockedRecord]:
    """
    Yield the order of a VM under its lock, with what an interrupted command left in it.

    renames
        Whether the caller settles an interrupted rename. Defaults to False: it is refused.

    Raises NameTaken if another command of this master works on that VM.
    """
    _await_end(opts, name)
    with records.hold_record(folder(opts), PURPOSE, name) as order:
        if order is None:
            raise taken_error(
                name, _describe_work(records.read_record(folder(opts), PURPOSE, name))
            )
        if order.record is not None and order.record.phase in renameorders.PHASES and not renames:
            raise NameTaken(renameorders.describe(order.record))
        yield order


def _await_end(opts: Mapping[str, Any], name: str) -> None:
    """Wait a moment for a command that is done and only reports its result."""
    until = time.monotonic() + _END_S
    while is_at_work(opts, name) and time.monotonic() < until:
        time.sleep(0.1)


def is_at_work(opts: Mapping[str, Any], name: str) -> bool:
    """Return whether a command of this master works on a VM."""
    return records.is_live(folder(opts), PURPOSE, name)


def list_moves(opts: Mapping[str, Any]) -> list[records.Record]:
    """Return this master's recorded orders of moves."""
    return [
        record for record in records.read_records(folder(opts), PURPOSE) if record.phase == MOVING
    ]


def ends_of_move(opts: Mapping[str, Any], name: str) -> tuple[str | None, ...]:
    """Return source and target of a VM's recorded move; empty if there is none."""
    record = records.read_record(folder(opts), PURPOSE, name)
    if record is None or record.phase != MOVING:
        return ()
    facts = read_move(record)
    return (facts.source, facts.target)


def read_facts(record: records.Record | None) -> OrderFacts:
    """Return the recorded facts of a deployment or a purge; empty ones for a move or a rename."""
    if record is None or record.phase in (MOVING, *renameorders.PHASES):
        return OrderFacts()
    return record.read(OrderFacts)


def read_move(record: records.Record) -> MoveOrderFacts:
    """Return the recorded facts of a move."""
    return record.read(MoveOrderFacts)


def begin(order: records.LockedRecord, phase: str, facts: OrderFacts | None = None) -> None:
    """Begin an order of this process, in place of any leftover."""
    order.begin(secrets.token_hex(8), phase, **wire.plain(facts or OrderFacts()))


def enter(order: records.LockedRecord, phase: str, facts: OrderFacts) -> None:
    """Enter a phase of a deployment or a purge, with these facts."""
    order.enter(phase, **wire.plain(facts))


def begin_move(order: records.LockedRecord, token: str, facts: MoveOrderFacts) -> None:
    """Begin the order of a move, in place of any leftover."""
    order.begin(token, MOVING, **wire.plain(facts))


def note_uuid(order: records.LockedRecord, uuid: str | None) -> None:
    """Record the UUID of the VM that moves."""
    order.note(**wire.plain(replace(read_move(order.now), uuid=uuid)))


def taken_error(name: str, action: str) -> NameTaken:
    """Return the error for a VM that another command of this master works on."""
    return NameTaken(
        f"VM {name!r} is being {action} by another salt-run at this moment; wait for it"
    )


def _describe_work(record: records.Record | None) -> str:
    return _WORK_BY_PHASE.get(record.phase, "deployed") if record else "worked on"
