"""
Common effects of :mod:`saltvirt.core.protocol.moveprotocol` on both hosts of a move, and the move's
record.
"""

import os
from typing import Any, Generic, TypeVar

from saltvirt.core import wire
from saltvirt.core.errors import VirtError
from saltvirt.core.journal import records
from saltvirt.core.journal.movefacts import ArrivalFacts, DepartureFacts
from saltvirt.core.protocol import effects as parts
from saltvirt.core.protocol import moveprotocol
from saltvirt.core.protocol.effects import Effects, MoveRecord
from saltvirt.core.salt.context import Context
from saltvirt.libvirt.domains import lifecycle
from saltvirt.libvirt.domains.migrate import MigrationFailed
from saltvirt.placement.answers import MigrationInfo
from saltvirt.storage import definitionfiles, sharing
from saltvirt.xml.edit import readdomain

_Facts = TypeVar("_Facts", ArrivalFacts, DepartureFacts)


class End(Generic[_Facts]):
    """Common base of source and target, which add the other effects of the protocol."""

    # The verb in the message if a part of the protocol is out of turn.
    _verb = "moved"
    _shape: type[_Facts]

    def __init__(
        self, context: Context, conn: Any, locked_record: records.LockedRecord, name: str
    ) -> None:
        self._context, self._settings = context, context.settings
        self.conn, self._held, self._name = conn, locked_record, name
        self.moving: MigrationInfo
        self.warnings: list[str] = []

    @property
    def there(self) -> MoveRecord | None:
        """The record from which a part of the protocol begins, None if there is none."""
        record = self._held.record
        if record is None:
            return None
        return MoveRecord(token=record.token, phase=record.phase)

    @property
    def facts(self) -> _Facts:
        """The facts recorded since the move began."""
        return self._held.now.read(self._shape)

    def _begin(self, token: str, phase: str, facts: _Facts) -> None:
        """Begin the record."""
        self._held.begin(token, phase, **wire.plain(facts))

    def _note(self, facts: _Facts, phase: str | None = None) -> None:
        """Record facts, and enter a phase if it is given; other fields of the record stay."""
        self._held.enter(phase or self._held.now.phase, **wire.plain(facts))

    def _does_not_start(self, error: VirtError) -> None:
        self.warnings.append(
            f"it does not start with its new host: {error}; when that is fixed, there: "
            f"virt.set_autostart {self._name} on"
        )

    def _forget(self, name: str, *, with_snapshots: bool) -> None:
        """Remove the definition of a VM that belongs to the other host."""
        state = readdomain.tpm_state(readdomain.domain(lifecycle.xml(self.conn, name)))
        # libvirt removes the TPM's state with the definition; on shared storage it is the only one.
        is_shared = state is not None and sharing.is_shared(self._settings, state)
        lifecycle.undefine_moved(self.conn, name, with_snapshots=with_snapshots, keep_tpm=is_shared)

    def keep_for(self, host: str) -> None:
        """Keep the leftovers of a VM that a third host has, and mark the VM as moved."""
        name = lifecycle.name_of(self.conn, self.facts.uuid)
        if name is not None and lifecycle.is_active(self.conn, name):
            raise MigrationFailed(f"VM {self._name!r} runs here, so {host} is not the only one")
        if name is not None:
            lifecycle.mark_moved(self.conn, name, host)
            definitionfiles.settle_definitions()
        leftover_paths = [path for path in self.facts.paths if os.path.exists(path)]
        if leftover_paths:
            self.warnings.append(f"its files are left there: {', '.join(leftover_paths)}")

    def do(self, effects: Effects) -> Any:
        """Run a part of the protocol; raise MigrationFailed if it is out of turn."""
        try:
            return parts.run(effects, self)
        except moveprotocol.OutOfTurn as error:
            raise MigrationFailed(
                f"VM {self._name!r} cannot be {self._verb}: {error}; if that move was "
                f"interrupted, have both hosts asked: salt-run virt.settle {self._name}"
            ) from error
