"""The source of a move: effects of :mod:`saltvirt.core.protocol.moveprotocol`, and their checks."""

import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from saltvirt.core import filecontent, undo, wire
from saltvirt.core.errors import NoSuchVm, StorageError, VirtError
from saltvirt.core.journal import records
from saltvirt.core.journal.movefacts import DepartureFacts
from saltvirt.core.model import Move
from saltvirt.core.options.config import HostSettings
from saltvirt.core.protocol import moveprotocol
from saltvirt.core.protocol.effects import Effects
from saltvirt.core.salt.context import Context
from saltvirt.libvirt import connect, departedvms, reservations
from saltvirt.libvirt.domains import halves, lifecycle, migrate, process, snapshots
from saltvirt.libvirt.domains.migrate import MigrationFailed
from saltvirt.libvirt.storage import diskvolumes
from saltvirt.migration.host import arrivalchecks, peer, sending
from saltvirt.migration.host.moveend import End
from saltvirt.placement.answers import MigrationInfo
from saltvirt.storage import definitionfiles, policies, trash
from saltvirt.vm.power.host import startlock
from saltvirt.vm.purge.host import removed
from saltvirt.vm.recovery.host import unfinished
from saltvirt.vm.show.host import migrationinfo


def signatures(facts: DepartureFacts) -> dict[str, list[int]]:
    """Return signatures: the recorded ones, and new ones of existing files to be removed."""
    existing_paths = [path for path in facts.paths if os.path.exists(path)]
    return {
        **(facts.signatures or {}),
        **{path: filecontent.signature(path) for path in existing_paths},
    }


def find_written(facts: DepartureFacts) -> Iterator[str]:
    """Yield the files that have changed since they were sent or handed over."""
    for path, old_signature in (facts.signatures or {}).items():
        if not os.path.exists(path) or filecontent.signature(path) != old_signature:
            yield path


def find_obstacles_here(conn: Any, name: str, facts: DepartureFacts) -> Iterator[str]:
    """Yield why this host must not remove anything of a VM, by its own checks."""
    # Only existing files that are to be removed can be lost.
    changed_paths = filter(os.path.exists, find_written(facts)) if facts.leaves else ()
    for path in changed_paths:
        yield (
            f"{path} was written to after it was sent (see which is right; if it is the other "
            f"host's, move this one away, then salt-run virt.settle {name})"
        )
    domain = lifecycle.name_of(conn, facts.uuid)
    # No domain is no obstacle: an interrupted removal may have undefined it.
    if domain is None and lifecycle.is_defined(conn, name):
        yield "it is another VM of this name"
    elif domain is not None and lifecycle.is_active(conn, domain):
        yield "it runs here"


def find_missing_there(conn: Any, target_conn: Any, facts: DepartureFacts) -> Iterator[str]:
    """Yield the parts of a VM that the target's libvirt lacks; ``conn`` is this host's."""
    domain = lifecycle.name_of(conn, facts.uuid)
    return migrate.find_missing_on_target(
        target_conn,
        facts.uuid,
        must_be_persistent=facts.leaves,
        handed_over_sizes=facts.sizes or {},
        # A target of a move by hand runs no check of its own.
        snapshots=snapshots.names(conn, domain) if domain and facts.leaves else (),
    )


_PURPOSE, _CANCELLED = "departure", "cancelled"
# How long a target may stay *arrived*, while the source removes files, before its record ends.
_LAST_STEP_S = 15
# How long a check of the target holds for removals on the source.
_FRESH_S = 2


@contextmanager
def open_departure(context: Context, name: str) -> Iterator["Departure"]:
    """Yield the departure of a VM with its record locked; raise NameTaken if another job has it."""
    settings = context.settings
    busy_message = f"VM {name!r} is being moved by another job at this moment"
    # Open both connections before the event loop runs, without libvirt's keepalive: that would end
    # a connection if this process is stopped for a while, although the move goes on.
    with (
        undo.on_signals(),
        connect.open_connection(settings, readonly=False) as conn,
        connect.open_connection(settings, readonly=False) as job_conn,
        reservations.open_record(settings, _PURPOSE, name, busy_message) as locked_record,
    ):
        yield Departure(context, (conn, job_conn), locked_record, name)


def is_cancelled_for_good(settings: HostSettings, token: str) -> bool:
    """Return whether a departure was cancelled for good."""
    return records.read_record(reservations.folder(settings), _CANCELLED, token) is not None


class Departure(End[DepartureFacts]):
    """The source's side of a move; each public method is an effect of the protocol."""

    _shape = DepartureFacts

    def __init__(
        self,
        context: Context,
        conns: tuple[Any, Any],
        locked_record: records.LockedRecord,
        name: str,
    ) -> None:
        super().__init__(context, conns[0], locked_record, name)
        self._carrier = conns[1]
        self.figures: dict[str, int] = {}
        self.removed: list[str] = []
        # The options of the move; set by send() and move_unprepared().
        self.options: Move | None = None
        self.present: Collection[str] | None = None
        self.target = ""
        self.is_by_hand = False
        # When the target was last checked, before a removal here.
        self._checked_at: float | None = None

    def open(self, token: str) -> None:
        """Begin, unless the VM is still coming here, or is being built or purged."""
        # Purges check for moves under the same lock.
        with reservations.host_lock(self._settings):
            effects = moveprotocol.open_departure(self.there, token)
            if self.there is None or self.there.phase == moveprotocol.CANCELLED:
                # The source of an earlier move must have ended it, as that host checks for the VM
                # here before it removes files.
                reservations.refuse_moving(self._settings, self._name, self.moving.uuid)
                reservations.refuse_building(self._settings, self._name)
            self.do(effects)

    # The record.

    def begin(self, token: str, phase: str) -> None:
        moving = self.moving
        own_paths = removed.find_own_files(self.conn, self._settings, self._name, removables=False)
        shared_paths = {disk.path for disk in moving.disks if disk.how == "shared"}
        nvram = [file.path for file in moving.nvram]
        volumes = [
            pool_disk.path
            for pool_disk in moving.disks
            if pool_disk.pool and not arrivalchecks.is_medium(pool_disk)
        ]
        facts = DepartureFacts(
            uuid=moving.uuid,
            target=self.target,
            was_running=moving.is_running,
            state=moving.state,
            autostart=moving.autostart,
            leaves=self.options is None or self.options.undefinesource,
            paths=sorted({*own_paths, *volumes, *nvram} - shared_paths),
            disks=_disks(moving),
            snapshots=snapshots.names(self.conn, self._name) or None,
            is_by_hand=self.is_by_hand or None,
        )
        self._begin(token, phase, facts)

    def enter(self, phase: str) -> None:
        # The target has checked the marks, or the move is over.
        migrationinfo.unmark_shared(self.facts.disks or (), self._held.now.token)
        self._held.enter(phase)

    def end(self) -> None:
        self._held.end()

    def bury(self, token: str) -> None:
        with self._grave(token) as grave:
            grave.begin(token, _CANCELLED)

    def unbury(self, token: str) -> None:
        with self._grave(token) as grave:
            grave.end()

    @contextmanager
    def _grave(self, token: str) -> Iterator[records.LockedRecord]:
        records_folder = reservations.folder(self._settings)
        with records.hold_record(records_folder, _CANCELLED, token, wait=True) as grave:
            if grave is not None:  # never None, as it waits
                yield grave

    # Sending.

    def push(self) -> None:
        files_to_send = sending.find_pushed(self.moving, self.present)
        signatures = {file.path: filecontent.signature(file.path) for file in files_to_send}
        with migrate.target(peer.uri_of(self.target)[0]) as target_conn:
            digests = {}
            for file in files_to_send:
                self._context.progress("Sending", detail=file.path)
                digests[file.path] = migrate.push(target_conn, file.path, file.path)
                sent_bytes = self.figures.get("sent_bytes", 0)
                self.figures["sent_bytes"] = sent_bytes + (file.actual_bytes or 0)
        self._note(replace(self.facts, digests=digests, signatures=signatures))

    def hold(self) -> None:
        with startlock.hold_start_lock(self._settings, self._name):
            # Read autostart again: it may have been set since the move began.
            current_info = self._refuse_changed()
            facts = replace(
                self.facts,
                leaves=self._leaves(),
                autostart=current_info.autostart,
                sizes=migrate.sizes(self.conn, self._name),
            )
            self._note(facts, moveprotocol.HANDING)

    def _leaves(self) -> bool:
        return bool(self._move.undefinesource and self._move.persistent)

    @property
    def _move(self) -> Move:
        """The options of the move; MigrationFailed if there are none."""
        if self.options is None:
            raise MigrationFailed(
                f"VM {self._name!r} cannot be sent: this call has no options of the move"
            )
        return self.options

    def _refuse_changed(self) -> MigrationInfo:
        current_info = migrationinfo.gather(self.conn, self._settings, self._name)[self._name]
        reasons = list(current_info.obstacles)
        if current_info.uuid != self.facts.uuid:
            reasons = ["it is another VM of this name now"]
        elif self._has_changed_state(current_info):
            # Put this before the obstacles: a VM saved meanwhile has one about its saved state.
            reasons.insert(0, f"it is {current_info.state} now: its state was changed meanwhile")
        # The target has made files only for the disks in the facts sent to it.
        elif _disks(current_info) != self.facts.disks:
            reasons.append("it has other disks now: they were changed meanwhile")
        elif (snapshots.names(self.conn, self._name) or None) != self.facts.snapshots:
            reasons.append("it has other snapshots now: they were changed meanwhile")
        reasons += [f"{path} was written to while it was sent" for path in find_written(self.facts)]
        if reasons:
            raise MigrationFailed(f"VM {self._name!r} stays where it is: {'; '.join(reasons)}")
        return current_info

    def _has_changed_state(self, current_info: MigrationInfo) -> bool:
        facts = self.facts
        # An operator has resumed or paused the VM; for a stopped VM all states are the same.
        if current_info.is_running and facts.was_running:
            return facts.state is not None and current_info.state != facts.state
        return current_info.is_running != facts.was_running

    def autostart_off(self) -> None:
        if self.facts.autostart:
            lifecycle.set_autostart(self.conn, self._name, "off")
            # Sync, or this host could start the VM after a crash while it runs on the target.
            definitionfiles.settle_definitions()

    def autostart_on(self) -> None:
        name = lifecycle.name_of(self.conn, self.facts.uuid)
        # A VM that was given up may not be defined here any more.
        if name is None:
            return
        lifecycle.unmark_moved(self.conn, name)
        if self.facts.autostart:
            lifecycle.set_autostart(self.conn, name, "on")
            definitionfiles.settle_definitions()

    def refuse_gone(self) -> None:
        name = lifecycle.name_of(self.conn, self.facts.uuid)
        paths = lifecycle.file_paths(self.conn, name) if name is not None else []
        missing_paths = [path for path in paths if not os.path.exists(path)]
        if name is None or missing_paths:
            missing_text = ", ".join(missing_paths) or "its definition"
            raise MigrationFailed(
                f"{missing_text} is removed already, so VM {self._name!r} does not stay"
            )

    def migrate(self) -> None:
        self.figures |= sending.hand_over(
            self._context, (self.conn, self._carrier), self.moving, self.target, self._move
        )
        if self.facts.was_running:
            # From now on the files change here only if the VM is started here.
            self._note(replace(self.facts, signatures=signatures(self.facts)))

    def stays(self) -> bool:
        return self._ran_and_is_here() and halves.runs_alone(self.conn, self._name)

    def is_handed(self) -> bool:
        return self._ran_and_is_here() and lifecycle.is_migrated(self.conn, self._name)

    def _ran_and_is_here(self) -> bool:
        # A transient VM is gone from here once it has moved.
        is_here = lifecycle.name_of(self.conn, self.facts.uuid) == self._name
        return self.facts.was_running and is_here

    def define_there(self) -> None:
        xml = lifecycle.migratable_xml(self.conn, self._name)
        with migrate.target(peer.uri_of(self.facts.target)[0]) as target_conn:
            lifecycle.define(target_conn, xml)

    # Leaving.

    def look(self) -> None:
        """Raise MigrationFailed unless the VM is off here and whole on the target."""
        self._checked_at, facts = time.monotonic(), self.facts
        reasons = list(find_obstacles_here(self.conn, self._name, facts))
        with migrate.target(peer.uri_of(facts.target)[0]) as target_conn:
            reasons += find_missing_there(self.conn, target_conn, facts)
            if not reasons:
                self._autostart_there(target_conn)
        if reasons:
            raise MigrationFailed(
                f"VM {self._name!r} has moved to {facts.target}, but nothing of it is "
                f"removed here: {'; '.join(reasons)}"
            )

    def _autostart_there(self, target_conn: Any) -> None:
        # In a move by hand no job of ours on the target sets autostart.
        if not (self.facts.is_by_hand and self.facts.autostart):
            return
        try:
            with connect.refusals():
                lifecycle.set_autostart(target_conn, self._name, "on")
        except VirtError as error:
            self._does_not_start(error)

    def _look_again(self) -> None:
        # The record, or the last check, may be old by now.
        if self._checked_at is None or time.monotonic() - self._checked_at > _FRESH_S:
            self.look()

    def undefine(self) -> None:
        name = lifecycle.name_of(self.conn, self.facts.uuid)
        if name is None:
            self._drop_leftover()
            return
        self._look_again()
        if self.facts.leaves and self.facts.is_by_hand:
            # The target may have the definition only in memory, and lose it in a power failure.
            departedvms.keep_definition(
                self._settings, name, lifecycle.migratable_xml(self.conn, name)
            )
        target_host = peer.uri_of(self.facts.target)[1]
        if self.facts.leaves:
            departedvms.note_target(self._settings, name, target_host)
            self._forget(name, with_snapshots=self._are_told(name))
        else:
            # The record ends, so a mark in the definition keeps the VM from starting here.
            lifecycle.mark_moved(self.conn, name, target_host)
        definitionfiles.settle_definitions()

    def _drop_leftover(self) -> None:
        """Remove the definition's file that libvirt has written of a VM without a definition."""
        uuid = self.facts.uuid
        if self.facts.leaves and definitionfiles.is_leftover(self.conn, self._name, uuid):
            self._look_again()
            definitionfiles.drop_leftover(self.conn, self._name, uuid)
            definitionfiles.settle_definitions()

    def _are_told(self, name: str) -> bool:
        """Return whether the target knows all snapshots that a VM has here."""
        return set(snapshots.names(self.conn, name)) <= set(self.facts.snapshots or ())

    def remove(self) -> None:
        if not self.facts.leaves:
            return
        if any(map(os.path.exists, self.facts.paths)):
            self._look_again()
        unfinished.remove_log(self._name)
        try:
            paths = self.facts.paths
            index = unfinished.index_without(self.conn, self._settings, self._name, paths)
            with trash.fill_trash(
                self._settings, self._name, reason="virt.migrate", days=0
            ) as drop:
                self.removed = unfinished.remove(
                    self._settings, index, policies.DELETE, paths, drop
                )
        except StorageError as exc:
            raise StorageError(f"VM {self._name!r} has moved, but {exc}") from exc
        finally:
            diskvolumes.refresh(self.conn, self.facts.paths)


def _disks(moving: MigrationInfo) -> list[list[str]]:
    """Return ``[target, path, how]`` of a VM's disks, which must not change during a move."""
    return [[disk.target, disk.path, disk.how] for disk in moving.disks]


def begin(context: Context, name: str, token: str, target: str) -> MigrationInfo:
    """Record that a VM is to leave for another host; return the facts that the target needs."""
    _await_arrival(context.settings, name)
    with open_departure(context, name) as departure:
        unfinished.settle(departure.conn, context.settings)
        moving = sending.facts(departure.conn, context.settings, name).get(name)
        if moving is None:
            raise NoSuchVm(name)
        if moving.obstacles:
            raise MigrationFailed(f"VM {name!r} cannot be moved: {'; '.join(moving.obstacles)}")
        departure.moving, departure.target = moving, target
        departure.open(token)
        return replace(
            moving, wire=moveprotocol.WIRE, marks=migrationinfo.mark_shared(moving, token)
        )


def _await_arrival(settings: HostSettings, name: str) -> None:
    """Wait for the last step of a move that has just moved a VM here, if it is in progress."""
    until = time.monotonic() + _LAST_STEP_S
    records_folder = reservations.folder(settings)
    while time.monotonic() < until:
        arrival_record = records.read_record(records_folder, "arrival", name)
        if arrival_record is None or arrival_record.phase != moveprotocol.ARRIVED:
            return
        time.sleep(0.2)


def send(
    context: Context,
    name: str,
    token: str,
    target: str,
    options: Move,
    present_paths: Collection[str] | None,
) -> dict[str, Any]:
    """Send a VM to a target that is prepared under a token; return the figures."""
    with open_departure(context, name) as departure:
        departure.moving = migrationinfo.gather(departure.conn, context.settings, name)[name]
        departure.target, departure.options, departure.present = target, options, present_paths
        warnings, start_s = _risks(departure), time.monotonic()
        departure.do(moveprotocol.send(departure.there, token))
        figures = sending.figures(departure.figures, start_s)
        return {**figures, **warnings, "noted": wire.plain(departure.facts.noted)}


def move_unprepared(context: Context, name: str, target: str, options: Move) -> dict[str, Any]:
    """Move a VM by hand, without local files, to a target that is not prepared."""
    with open_departure(context, name) as departure:
        moving = migrationinfo.gather(departure.conn, context.settings, name)[name]
        sending.refuse_unprepared(context.settings, moving, target, options)
        departure.moving, departure.target, departure.options, departure.present = (
            moving,
            target,
            options,
            None,
        )
        departure.is_by_hand = True
        token, warnings, start_s = os.urandom(8).hex(), _risks(departure), time.monotonic()
        departure.open(token)
        departure.do(moveprotocol.send(departure.there, token))
        departure.do(moveprotocol.finish(departure.there, token))
        all_warnings = [*warnings.get("warnings", ()), *departure.warnings]
        figures = sending.figures(departure.figures, start_s)
        return {**figures, "warnings": all_warnings} if all_warnings else figures


def _risks(departure: Departure) -> dict[str, list[str]]:
    """Return the warnings about a move; call it before the move, as libvirt may die in it."""
    qemu = process.qemu(departure.conn, departure.moving.name)
    risks = sending.risks(departure._move, departure.moving, qemu)
    return {"warnings": risks} if risks else {}


def step(context: Context, name: str, token: str, step_name: str, **options: Any) -> dict[str, Any]:
    """
    Run a step of settling a move on its source; see
    :data:`saltvirt.core.protocol.moveprotocol.ON_SOURCE`.
    """
    steps: dict[str, Callable[..., Effects]] = {
        moveprotocol.CANCEL: moveprotocol.cancel,
        moveprotocol.REDEFINE: moveprotocol.redefine,
        moveprotocol.FINISH: moveprotocol.finish,
        moveprotocol.FORGET: moveprotocol.forget,
        moveprotocol.GIVE_WAY: moveprotocol.give_way,
    }
    with open_departure(context, name) as departure:
        departure.do(steps[step_name](departure.there, token, **options))
        return {"removed": departure.removed, "warnings": departure.warnings}
