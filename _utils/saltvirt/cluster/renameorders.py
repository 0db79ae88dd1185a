"""
The orders of renames: of the two names of a VM each has one half of the record, with all facts.

Either half is enough to go on: a killed command may have written, or ended, only one.
"""

import secrets
import shlex

from saltvirt.core import wire
from saltvirt.core.journal import recordfacts, records
from saltvirt.core.journal.recordfacts import RenameOrderFacts

PHASES = (recordfacts.RENAMING, recordfacts.RENAMED)


def read(record: records.Record) -> RenameOrderFacts:
    """Return the recorded facts of a rename."""
    return record.read(RenameOrderFacts)


def describe(record: records.Record) -> str:
    """Return the message about an interrupted rename, with the commands that end it."""
    facts = read(record)
    old, new = shlex.quote(facts.old), shlex.quote(facts.new)
    return (
        f"VM {facts.old!r} was being renamed to {facts.new!r}, and that was interrupted: salt-run "
        f"virt.rename {old} {new} completes it, and salt-run virt.rename {new} {old} undoes it"
    )


def begin(order: records.LockedRecord, facts: RenameOrderFacts) -> None:
    """Begin one half of a rename's record, in place of any leftover."""
    order.begin(secrets.token_hex(8), recordfacts.RENAMING, **wire.plain(facts))


def enter(order: records.LockedRecord, phase: str, facts: RenameOrderFacts) -> None:
    """Enter a phase in one half of a rename's record, with these facts."""
    order.enter(phase, **wire.plain(facts))
