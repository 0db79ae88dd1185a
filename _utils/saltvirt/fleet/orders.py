"""
Orders: what this master has begun for a VM; one at a time for each name.

An order is a record under the VM's name (see :mod:`saltvirt.records`). Its phases, and what exists
in each:

==========  =====================================================================================
placing     nothing; a host is being looked for
keyed       the key that was noted may be accepted, no host has been asked
ordered     the host that was noted was asked to build the VM
built       that host has said that the VM is complete
moving      a move; what exists is the hosts' affair, and settled with them
removing    the host that was noted was asked to remove the VM; the key that was noted goes last
==========  =====================================================================================
"""

import json
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from saltvirt import arguments, files, locks, protocol, recordfacts, records, wire
from saltvirt.errors import NameTaken
from saltvirt.recordfacts import MoveOrderFacts, OrderFacts

PURPOSE = "order"
_END_S = 3
PLACING, KEYED, ORDERED, BUILT = "placing", "keyed", "ordered", "built"
MOVING, REMOVING = recordfacts.MOVING, "removing"
_WORK_BY_PHASE = {MOVING: "moved", REMOVING: "removed"}


def folder(opts: Mapping[str, Any]) -> Path:
    """Return the folder of this master's records."""
    return Path(opts["cachedir"]) / "salt-virt" / "records"


@contextmanager
def opened(
    opts: Mapping[str, Any], name: str, *, is_there: bool = False
) -> Iterator[records.LockedRecord]:
    """
    Yield the order of a VM under its lock, with what an interrupted command has left in it.

    is_there
        Whether it is a VM that is there already: others may have named it as libvirt allows.
        Defaults to False.

    Raises NameTaken if another command of this master is at work on that VM.
    """
    if is_there:
        arguments.text("name", name)
    else:
        arguments.vm_name(name)
    _await_end(opts, name)
    with records.hold_record(folder(opts), PURPOSE, name) as order:
        if order is None:
            raise taken_error(
                name, _describe_work(records.read_record(folder(opts), PURPOSE, name))
            )
        _adopt(opts, order, name)
        yield order


def _await_end(opts: Mapping[str, Any], name: str) -> None:
    """Wait a moment for a command that has finished its work and is only reporting it."""
    until = time.monotonic() + _END_S
    while is_at_work(opts, name) and time.monotonic() < until:
        time.sleep(0.1)


def is_at_work(opts: Mapping[str, Any], name: str) -> bool:
    """Return whether a command of this master is at work on a VM."""
    return records.is_live(folder(opts), PURPOSE, name)


def list_moves(opts: Mapping[str, Any]) -> list[records.Record]:
    """Return the orders of moves that this master has on record."""
    return [
        record for record in records.read_records(folder(opts), PURPOSE) if record.phase == MOVING
    ]


def ends_of_move(opts: Mapping[str, Any], name: str) -> tuple[str | None, ...]:
    """Return the two hosts of the move of a VM that is on record here; none if there is no move."""
    record = records.read_record(folder(opts), PURPOSE, name)
    if record is None or record.phase != MOVING:
        return ()
    facts = read_move(record)
    return (facts.source, facts.target)


def read_facts(record: records.Record | None) -> OrderFacts:
    """Return what is on record of a deployment or a purge; nothing is, of a move."""
    if record is None or record.phase == MOVING:
        return OrderFacts()
    return record.read(OrderFacts)


def read_move(record: records.Record) -> MoveOrderFacts:
    """Return what is on record of a move."""
    return record.read(MoveOrderFacts)


def begin(order: records.LockedRecord, phase: str, facts: OrderFacts | None = None) -> None:
    """Begin an order of this process, in place of any that was left."""
    order.begin(secrets.token_hex(8), phase, **wire.plain(facts or OrderFacts()))


def enter(order: records.LockedRecord, phase: str, facts: OrderFacts) -> None:
    """Go on to a phase of a deployment or a purge, with these facts."""
    order.enter(phase, **wire.plain(facts))


def begin_move(order: records.LockedRecord, token: str, facts: MoveOrderFacts) -> None:
    """Begin the order of a move, in place of any that was left."""
    order.begin(token, MOVING, **wire.plain(facts))


def note_uuid(order: records.LockedRecord, uuid: str | None) -> None:
    """Have it on record which VM a move is of."""
    order.note(**wire.plain(replace(read_move(order.now), uuid=uuid)))


def taken_error(name: str, action: str) -> NameTaken:
    """Return the error of a VM that another command of this master is at work on."""
    return NameTaken(
        f"VM {name!r} is being {action} by another salt-run at this moment; wait for it"
    )


def _describe_work(record: records.Record | None) -> str:
    return _WORK_BY_PHASE.get(record.phase, "deployed") if record else "worked on"


def _adopt(opts: Mapping[str, Any], order: records.LockedRecord, name: str) -> None:
    """Take over the journal of a VM that an older version has left."""
    path = Path(opts["cachedir"]) / "salt-virt" / f"{name}.json"
    # Older versions knew no names that lead anywhere else.
    if path.name != f"{name}.json" or not path.exists():
        return
    if locks.is_held(path):
        raise taken_error(name, _describe_work(None))
    journal = _read_journal(path)
    # A record that is there already is newer: this was cut off before the journal had gone.
    if order.record is None and "to" in journal:
        facts = MoveOrderFacts(source=journal["host"], target=journal["to"])
        begin_move(order, protocol.legacy_token(name), facts)
    elif order.record is None and journal:
        begin(order, ORDERED, OrderFacts(public_key=journal["public_key"], host=journal["host"]))
    files.unlink(path)


def _read_journal(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except ValueError:
        return {}  # cut off before it was written, and so before anything was done
    return content if isinstance(content, dict) and "host" in content else {}
