"""The target of a move: effects of :mod:`saltvirt.core.protocol.moveprotocol`."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from saltvirt.core import filecontent, files, undo, wire
from saltvirt.core.errors import HostUnreachable, ReservationRefused, VirtError, VmIncomplete
from saltvirt.core.journal import records
from saltvirt.core.journal.movefacts import ArrivalFacts, Noted, lost_half_message
from saltvirt.core.protocol import moveprotocol
from saltvirt.core.protocol.effects import Effects
from saltvirt.core.salt.context import Context
from saltvirt.libvirt import connect, departedvms, reservations
from saltvirt.libvirt.domains import halves, lifecycle, snapshots
from saltvirt.libvirt.domains.migrate import MigrationFailed
from saltvirt.libvirt.storage import diskvolumes
from saltvirt.migration.host import arrivalchecks, arrivalplan, incomingfiles, peer
from saltvirt.migration.host.moveend import End
from saltvirt.placement.answers import MigrationInfo
from saltvirt.storage import claims, definitionfiles, ownermark, policies, trash
from saltvirt.storage.images import incoming, removal
from saltvirt.vm.power.host import startlock
from saltvirt.vm.recovery.host import unfinished

_PURPOSE = "arrival"


@contextmanager
def open_arrival(context: Context, name: str) -> Iterator["Arrival"]:
    """Yield the arrival of a VM with its record locked; raise NameTaken if another job has it."""
    settings = context.settings
    busy_message = f"another job is preparing this host for VM {name!r} at this moment"
    with (
        undo.on_signals(),
        connect.open_connection(settings, readonly=False) as conn,
        reservations.open_record(settings, _PURPOSE, name, busy_message) as locked_record,
    ):
        yield Arrival(context, conn, locked_record, name)


class Arrival(End[ArrivalFacts]):
    """The target's side of a move; each public method is an effect of the protocol."""

    _verb = "taken"
    _shape = ArrivalFacts

    def __init__(
        self, context: Context, conn: Any, locked_record: records.LockedRecord, name: str
    ) -> None:
        super().__init__(context, conn, locked_record, name)
        self._reserving = ExitStack()
        self.source: str | None = None
        # The VM's media that are here already; set by prepare() and resume().
        self.media: frozenset[str] = frozenset()
        self.plan: arrivalplan.ArrivalPlan
        self.warnings: list[str] = []
        # The source's recorded facts about the VM, which the runner passes on.
        self.noted = Noted()

    def do(self, effects: Effects) -> Any:
        # Release the host's lock even if the part fails between check and begin.
        with self._reserving:
            return super().do(effects)

    def _here(self, conn: Any = None) -> str | None:
        """Return the VM's name on this host, None if the VM is not here."""
        return lifecycle.name_of(self.conn if conn is None else conn, self.facts.uuid)

    # Preparing.

    def check(self) -> None:
        # Hold the host's lock until the record begins: the room is not checked again.
        self._reserving.enter_context(reservations.host_lock(self._settings))
        startlock.refuse_moving(self._settings, self._name, self.moving.uuid)
        reservations.refuse_building(self._settings, self._name)
        definitionfiles.refuse_not_loaded(self.conn, self._name)
        reasons = arrivalchecks.check(self.conn, self._settings, self.moving)
        if reasons:
            raise ReservationRefused(self._name, reasons)

    def begin(self, token: str, phase: str) -> None:
        self._begin(token, phase, arrivalplan.initial_facts(self.moving, self.media, self.source))
        self._reserving.close()

    def make(self) -> bool:
        """Make the planned files; return whether the source must send images first."""
        self._admit()
        token = self._held.now.token
        local_facts = arrivalplan.gather(self._context, self.moving, self.media, token)
        self.plan = arrivalplan.decide(self.moving, local_facts)
        for image in self.plan.images:
            self._make(image.path, partial(incomingfiles.resize, image.path, image.size_bytes))
        for file in self.plan.files:
            self._make(file.path, partial(incomingfiles.make, file))
            if file.base:
                removal.refuse_removed(self._settings, file.base.path)
        is_waiting, facts = bool(self.plan.images), self.facts
        if not is_waiting:
            files.sync_files(facts.paths)
        # Record the folders before opening them, so that no other move closes their pools.
        folders = sorted({str(Path(path).parent) for path in facts.paths})
        self._note(replace(facts, folders=folders, images=self.plan.image_paths))
        peer.open_folders(self.conn, self._settings, facts.paths)
        return is_waiting

    def _admit(self) -> None:
        """Take the images that the source has sent into the cache."""
        for digest, path in self.facts.images.items():
            incoming.admit(self._settings, digest, Path(path))
            remaining_paths = [noted_path for noted_path in self.facts.paths if noted_path != path]
            self._note(replace(self.facts, paths=remaining_paths))
        self._note(replace(self.facts, images={}))

    def _make(self, path: str, make: Callable[[], None]) -> None:
        """Record a file, then make it; raise FileTaken if another host has made it."""
        # :meth:`remove` removes each recorded file, also after a crash, unless its mark shows that
        # another host has made it.
        noted_paths, token = self.facts.paths, self._held.now.token
        if path not in noted_paths:
            with reservations.host_lock(self._settings):
                reservations.refuse_taken(self._settings, self._name, [path])
                claims.announce(path, token)
                self._note(replace(self.facts, paths=[*noted_paths, path]))
        try:
            claims.take(path, token)
        except claims.FileTaken:
            # Another host sharing the folder was faster: its file must not be removed.
            self._note(replace(self.facts, paths=noted_paths))
            claims.complete(path, token)
            raise
        make()
        claims.complete(path, token)

    def enter(self, phase: str) -> None:
        facts = self.facts
        if phase == moveprotocol.READY:
            signatures = {path: filecontent.signature(path) for path in facts.paths}
            facts = replace(facts, untouched=signatures)
        self._note(facts, phase)

    def end(self) -> None:
        peer.close_folders(self.conn, self._settings, self._name)
        diskvolumes.refresh(self.conn, self.facts.paths)
        reservations.end(self._settings, self._held)

    # Arriving.

    def verify(self) -> None:
        """Raise VmIncomplete if the VM is neither whole nor running here; sync its files."""
        name = self._arrived()
        self._refuse_transient(name)
        reasons = [*self._lacking(), *self._different(), *self._untold(name)]
        is_up = lifecycle.is_active(self.conn, name)
        if reasons and not is_up:
            raise VmIncomplete(f"VM {self._name!r} has not come here whole: {'; '.join(reasons)}")
        self.warnings += reasons
        if self.facts.was_running and not is_up:
            self.warnings.append("it ran when it was sent, and does not run here")
        present_paths = [path for path in self.facts.paths if os.path.exists(path)]
        for path in present_paths:
            ownermark.mark(path, self._name, self.facts.uuid)
        files.sync_files(present_paths)
        definitionfiles.settle_definitions()
        departedvms.forget_target(self._settings, self._name)

    def _arrived(self) -> str:
        """Return the VM's name here; raise MigrationFailed if it is missing or still arriving."""
        name = self._here()
        if name is not None and halves.has_failed_postcopy(self.conn, name):
            lost_message = lost_half_message(name, "this host", is_source=True)
            raise MigrationFailed(f"post-copy of VM {self._name!r} has failed: {lost_message}")
        if name is None or halves.is_arriving(self.conn, name):
            raise MigrationFailed(f"VM {self._name!r} is not defined here")
        return name

    def _refuse_transient(self, name: str) -> None:
        # libvirt reports success even if it could not define the domain here. A VM may be transient
        # here only if its definition stays on the source, or never existed.
        if self.noted.leaves and not lifecycle.is_persistent(self.conn, name):
            raise MigrationFailed(
                f"VM {self._name!r} runs here, but its definition was not kept, so it would be "
                f"gone when it stops; have it kept here by virsh dumpxml --migratable "
                f"--security-info {name} >FILE and virsh define FILE, then salt-run virt.settle "
                f"{self._name}"
            )

    def _lacking(self) -> Iterator[str]:
        facts = self.facts
        yield from incomingfiles.find_too_small(facts.virtual or {})
        for path in facts.paths:
            size = facts.sizes.get(path)
            if not os.path.exists(path):
                yield f"its file {path} is missing"
            elif size is not None and os.path.getsize(path) != size:
                yield f"its file {path} has {os.path.getsize(path)} bytes, not {size}"

    def _untold(self, name: str) -> Iterator[str]:
        known_names = snapshots.names(self.conn, name) if self.noted.snapshots else ()
        for snapshot_name in self.noted.snapshots or ():
            if snapshot_name not in known_names:
                yield f"this host was not told of its snapshot {snapshot_name}"

    def _different(self) -> Iterator[str]:
        for path, expected_digest in (self.noted.digests or {}).items():
            if os.path.exists(path):
                self._context.progress("Checking", detail=path)
                try:
                    if filecontent.digest(path) != expected_digest:
                        yield f"{path} is not what was sent"
                except OSError as exc:
                    yield f"{path} cannot be read ({exc.strerror})"

    def autostart_on(self) -> None:
        source_autostart = self.noted.autostart
        # If the source is lost or its record is gone, use the setting from the beginning.
        if not (self.facts.autostart if source_autostart is None else source_autostart):
            return
        try:
            # Open a new connection: libvirtd may have died during the long verification. If it is
            # gone, the next settling tries again.
            with connect.open_connection(self._settings, readonly=False) as conn:
                # The VM may have been renamed, and its name given to another VM.
                lifecycle.set_autostart(conn, self._here(conn) or self._name, "on")
            definitionfiles.settle_definitions()
        except HostUnreachable:
            raise
        except VirtError as error:
            # The VM has arrived all the same: the command only warns.
            self._does_not_start(error)

    # Giving up.

    def refuse_running(self) -> None:
        name = self._here()
        if name is not None and lifecycle.is_active(self.conn, name):
            raise MigrationFailed(f"VM {self._name!r} runs here, so it is not given back")

    def undefine(self) -> None:
        name = self._here()
        if name is not None:
            self.refuse_running()
            # The source still has the snapshots that were redefined here.
            self._forget(name, with_snapshots=True)
            definitionfiles.settle_definitions()

    def remove(self) -> None:
        token, paths = self._held.now.token, self.facts.paths
        own_paths = [path for path in paths if claims.is_own(path, token)]
        index = unfinished.index_without(self.conn, self._settings, self._name, own_paths)
        # An arrived VM may have run here, so its files go into the trash. In any other phase the
        # source still has all the data.
        has_arrived = self._held.now.phase == moveprotocol.ARRIVED
        days = trash.settled_days(self._settings) if has_arrived else 0
        with trash.fill_trash(self._settings, self._name, reason="virt.settle", days=days) as drop:
            unfinished.remove(self._settings, index, policies.UNDO, own_paths, drop)
        for path in paths:
            claims.complete(path, token)
        unfinished.remove_log(self._name)


def parse_migration_info(context: Context, plain_info: object) -> MigrationInfo:
    """Parse the source's facts about a VM; raise MigrationFailed if its protocol is newer."""
    fields: dict[str, Any] = plain_info if isinstance(plain_info, dict) else {}
    version = fields.get("wire")
    # Check the version first: a newer protocol may have other types in the fields below.
    if isinstance(version, int) and version > moveprotocol.WIRE:
        raise MigrationFailed(
            f"VM {fields.get('name')!r} is on a host whose Salt Virt moves VMs by version "
            f"{version} of the protocol, and this host knows {moveprotocol.WIRE}; update this "
            f"host: salt {context.opts.get('id', 'HOST')} saltutil.sync_all"
        )
    moving: MigrationInfo = wire.argument("about", MigrationInfo, plain_info)
    return moving


def prepare(
    context: Context, moving: MigrationInfo, token: str, source: str | None
) -> dict[str, Any]:
    """
    Reserve room for a VM that comes, and make the files that the source writes to.

    Returns ``{"images": {digest: path}, "present": [path], "token": token}``. ``images`` are images
    that this host cannot get: the source sends them before :func:`resume`. ``present`` are media
    that are here already.
    """
    with open_arrival(context, moving.name) as arrival:
        unfinished.settle(arrival.conn, context.settings)
        arrival.moving, arrival.source, arrival.media = (
            moving,
            source,
            arrivalplan.find_present_media(context.settings, moving),
        )
        arrival.do(moveprotocol.prepare(arrival.there, token))
        return _answer(arrival.plan, token)


def resume(context: Context, moving: MigrationInfo, token: str | None) -> dict[str, Any]:
    """Continue :func:`prepare` once the missing images have arrived; check each image first."""
    with open_arrival(context, moving.name) as arrival:
        arrival.moving, arrival.media = (
            moving,
            arrivalplan.find_present_media(context.settings, moving),
        )
        arrival.do(
            moveprotocol.resume(
                arrival.there, token or (arrival.there.token if arrival.there else "")
            )
        )
        return _answer(arrival.plan, token)


def _answer(plan: arrivalplan.ArrivalPlan, token: str | None) -> dict[str, Any]:
    return {"images": plan.image_paths, "present": list(plan.present_media), "token": token}


def step(
    context: Context,
    name: str,
    token: str,
    step_name: str,
    noted: Noted | None = None,
    **options: Any,
) -> dict[str, Any]:
    """
    Run a step of settling a move on its target; see
    :data:`saltvirt.core.protocol.moveprotocol.ON_TARGET`.
    """
    steps: dict[str, Callable[..., Effects]] = {
        moveprotocol.ARRIVE: moveprotocol.arrive,
        moveprotocol.REFUSE: moveprotocol.refuse,
        moveprotocol.DROP: moveprotocol.drop,
        moveprotocol.END: moveprotocol.end,
        moveprotocol.LET_GO: moveprotocol.give_way,
    }
    make = steps[step_name]
    with open_arrival(context, name) as arrival:
        arrival.noted = noted or Noted()
        arrival.do(make(arrival.there, token, **options))
        return {"warnings": arrival.warnings}
