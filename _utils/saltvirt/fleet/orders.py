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
_AT_IT = {MOVING: "moved", REMOVING: "removed"}


def folder(opts: Mapping[str, Any]) -> Path:
    """Return the folder of this master's records."""
    return Path(opts["cachedir"]) / "salt-virt" / "records"


@contextmanager
def opened(opts: Mapping[str, Any], name: str, *, is_there: bool = False) -> Iterator[records.Held]:
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
    with records.held(folder(opts), PURPOSE, name) as held:
        if held is None:
            raise taken(name, _doing(records.look(folder(opts), PURPOSE, name)))
        _adopt(opts, held, name)
        yield held


def _await_end(opts: Mapping[str, Any], name: str) -> None:
    """Wait a moment for a command that has finished its work and is only reporting it."""
    until = time.monotonic() + _END_S
    while is_at_work(opts, name) and time.monotonic() < until:
        time.sleep(0.1)


def is_at_work(opts: Mapping[str, Any], name: str) -> bool:
    """Return whether a command of this master is at work on a VM."""
    return records.is_live(folder(opts), PURPOSE, name)


def moving(opts: Mapping[str, Any]) -> list[records.Record]:
    """Return the orders of moves that this master has on record."""
    return [one for one in records.every(folder(opts), PURPOSE) if one.phase == MOVING]


def ends_of_move(opts: Mapping[str, Any], name: str) -> tuple[str | None, ...]:
    """Return the two hosts of the move of a VM that is on record here; none if there is no move."""
    record = records.look(folder(opts), PURPOSE, name)
    if record is None or record.phase != MOVING:
        return ()
    facts = move(record)
    return (facts.source, facts.target)


def facts(record: records.Record | None) -> OrderFacts:
    """Return what is on record of a deployment or a purge; nothing is, of a move."""
    if record is None or record.phase == MOVING:
        return OrderFacts()
    return record.read(OrderFacts)


def move(record: records.Record) -> MoveOrderFacts:
    """Return what is on record of a move."""
    return record.read(MoveOrderFacts)


def begin(held: records.Held, phase: str, facts: OrderFacts | None = None) -> None:
    """Begin an order of this process, in place of any that was left."""
    held.begin(secrets.token_hex(8), phase, **wire.plain(facts or OrderFacts()))


def enter(held: records.Held, phase: str, facts: OrderFacts) -> None:
    """Go on to a phase of a deployment or a purge, with these facts."""
    held.enter(phase, **wire.plain(facts))


def begin_move(held: records.Held, token: str, facts: MoveOrderFacts) -> None:
    """Begin the order of a move, in place of any that was left."""
    held.begin(token, MOVING, **wire.plain(facts))


def note_uuid(held: records.Held, uuid: str | None) -> None:
    """Have it on record which VM a move is of."""
    held.note(**wire.plain(replace(move(held.now), uuid=uuid)))


def taken(name: str, done: str) -> NameTaken:
    """Return the error of a VM that another command of this master is at work on."""
    return NameTaken(f"VM {name!r} is being {done} by another salt-run at this moment; wait for it")


def _doing(record: records.Record | None) -> str:
    return _AT_IT.get(record.phase, "deployed") if record else "worked on"


def _adopt(opts: Mapping[str, Any], held: records.Held, name: str) -> None:
    """Take over the journal of a VM that an older version has left."""
    path = Path(opts["cachedir"]) / "salt-virt" / f"{name}.json"
    # Older versions knew no names that lead anywhere else.
    if path.name != f"{name}.json" or not path.exists():
        return
    if locks.is_held(path):
        raise taken(name, _doing(None))
    left = _journal(path)
    # A record that is there already is newer: this was cut off before the journal had gone.
    if held.record is None and "to" in left:
        facts = MoveOrderFacts(source=left["host"], target=left["to"])
        begin_move(held, protocol.legacy_token(name), facts)
    elif held.record is None and left:
        begin(held, ORDERED, OrderFacts(public_key=left["public_key"], host=left["host"]))
    files.unlink(path)


def _journal(path: Path) -> dict[str, Any]:
    try:
        left = json.loads(path.read_text())
    except ValueError:
        return {}  # cut off before it was written, and so before anything was done
    return left if isinstance(left, dict) and "host" in left else {}
