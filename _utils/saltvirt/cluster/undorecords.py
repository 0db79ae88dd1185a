"""
What virt.undo needs at the master: which host had the last purged VM of a name, and its key.

A record is written before the key is deleted. The host's trash decides whether the VM can still be
brought back; a record is kept for as long as the longest usual trash.
"""

import secrets
import time
from collections.abc import Mapping
from typing import Any

from saltvirt.cluster import minionkeys, orders
from saltvirt.core import wire
from saltvirt.core.journal import records
from saltvirt.core.journal.recordfacts import UndoFacts
from saltvirt.core.journal.records import LockedRecord, Record

PURPOSE = "undo"
# The phase of an order after the host was asked to bring the VM back.
RESTORING = "restoring"
_NOTED = "noted"
_KEPT_S = 366 * 24 * 3600


def note(opts: Mapping[str, Any], name: str, facts: UndoFacts) -> None:
    """Record the VM that a purge has removed, in place of a former one of that name."""
    folder = orders.folder(opts)
    with records.hold_record(folder, PURPOSE, name, wait=True) as held:
        if held is not None:
            held.begin(secrets.token_hex(8), _NOTED, **wire.plain(facts))
    for record in records.read_records(folder, PURPOSE):
        if record.since + _KEPT_S < time.time():
            forget(opts, record.name)


def note_order(opts: Mapping[str, Any], record: Record) -> None:
    """Record the VM of an interrupted purge, if virt.undo may bring it back."""
    facts = orders.read_facts(record)
    if facts.host is not None and facts.undo_uuid is not None:
        undo_facts = UndoFacts(host=facts.host, uuid=facts.undo_uuid, public_key=facts.public_key)
        note(opts, record.name, undo_facts)


def read(opts: Mapping[str, Any], name: str) -> UndoFacts | None:
    """Return what is on record of the last purged VM of a name, None if there is nothing."""
    record = records.read_record(orders.folder(opts), PURPOSE, name)
    return None if record is None else record.read(UndoFacts)


def complete(opts: Mapping[str, Any], order: LockedRecord, public_key: str | None) -> None:
    """Accept the key of a VM that is back, end its order, and forget that it was purged."""
    if public_key is not None and minionkeys.read_accepted(opts, order.name) is None:
        minionkeys.accept(opts, order.name, public_key)
    order.end()
    # Last: without this record nothing would finish the rest.
    forget(opts, order.name)


def forget(opts: Mapping[str, Any], name: str) -> None:
    """Remove the record of a purged VM."""
    with records.hold_record(orders.folder(opts), PURPOSE, name, wait=True) as held:
        if held is not None and held.record is not None:
            held.end()
