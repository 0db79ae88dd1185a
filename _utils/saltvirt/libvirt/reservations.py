"""
Reservations: the VMs on their way to this host, and the room reserved for them.

Records of builds and arrivals are the reservations. A job holds the host's lock from checking for
room until it has begun its record, so that no room is given away twice.
"""

import os
import shlex
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from saltvirt.core import files, locks, wire
from saltvirt.core.errors import NameTaken, StorageError
from saltvirt.core.journal import recordfacts, records
from saltvirt.core.journal.movefacts import ArrivalFacts, DepartureFacts
from saltvirt.core.journal.recordfacts import BuildFacts, DiskMoveFacts, PurgeFacts
from saltvirt.core.model import Requirements
from saltvirt.core.options.config import HostSettings
from saltvirt.core.protocol import diskprotocol, moveprotocol
from saltvirt.placement.answers import ComingFacts

# The phases of an arrival with room reserved for a VM that is not here yet.
_COMING = (moveprotocol.PREPARING, moveprotocol.READY)
# Descriptions of a move by the purpose of its record. A cancelled move blocks nothing; a refused
# one still has files here, which are removed by their paths.
_MOVES = {"departure": "leaving this host", "arrival": "coming to this host"}
# The purposes of the records that a host settles by itself.
SETTLED_HERE = ("build", "purge", diskprotocol.PURPOSE)
_Facts = BuildFacts | PurgeFacts | DiskMoveFacts | ArrivalFacts | DepartureFacts


def folder(settings: HostSettings) -> Path:
    """Return the folder of all records of this host."""
    return Path(settings.state_dir) / records.FOLDER


@contextmanager
def open_record(
    settings: HostSettings, purpose: str, name: str, busy_message: str
) -> Iterator[records.LockedRecord]:
    """Yield a VM's record of a purpose under its lock; raise NameTaken if another job has it."""
    with records.hold_record(folder(settings), purpose, name) as locked_record:
        if locked_record is None:
            raise NameTaken(busy_message)
        yield locked_record


@contextmanager
def host_lock(settings: HostSettings) -> Iterator[None]:
    """Hold the lock under which jobs check this host's room and begin records."""
    records.make_folder(Path(settings.state_dir))
    with locks.hold_lock(Path(settings.state_dir) / "claims.lock"):
        yield


def read_coming_vms(settings: HostSettings) -> dict[str, ComingFacts]:
    """Return ``{name: its room}`` of the VMs that are being built here, or sent here."""
    builds = {
        record.name: _reserved_room(record.read(BuildFacts))
        for record in _read_records(settings, "build")
        if _is_live(settings, record)
    }
    arrivals = {
        record.name: _reserved_room(record.read(ArrivalFacts))
        for record in _read_records(settings, "arrival")
        if record.phase in _COMING
    }
    return {**builds, **arrivals}


def _read_records(settings: HostSettings, *purposes: str) -> Iterator[records.Record]:
    for purpose in purposes:
        yield from records.read_records(folder(settings), purpose)


def _is_live(settings: HostSettings, record: records.Record) -> bool:
    """Return whether a job works on a record."""
    return records.is_live(folder(settings), record.purpose, record.name)


def _reserved_room(facts: BuildFacts | ArrivalFacts) -> ComingFacts:
    return ComingFacts(
        vcpus=facts.vcpus,
        memory_mib=facts.memory_mib,
        disk_mib=facts.disk_mib,
        affinity=facts.affinity,
        anti_affinity=facts.anti_affinity,
        stocks=facts.stocks if isinstance(facts, BuildFacts) else {},
    )


def read_coming_disks(settings: HostSettings) -> list[ComingFacts]:
    """Return the room that disks which are moved within this host may take of pools."""
    return [
        ComingFacts(
            vcpus=0,
            memory_mib=0,
            disk_mib=0,
            affinity=[],
            anti_affinity=[],
            stocks=record.read(DiskMoveFacts).stocks,
        )
        for record in _read_records(settings, diskprotocol.PURPOSE)
        if record.phase == diskprotocol.COPYING
    ]


def _facts(record: records.Record) -> _Facts:
    """Return the facts of a record; all shapes have the VM's ``uuid`` and ``paths``."""
    shape: Any = recordfacts.shape(record.purpose, record.phase)
    facts: _Facts = record.read(shape)
    return facts


def find_unfinished(settings: HostSettings) -> list[str]:
    """
    Return the names of VMs with an interrupted job, or with an unreadable record.

    The jobs are builds, purges and moves of disks.
    """
    dead_names = {
        record.name
        for record in _read_records(settings, *SETTLED_HERE)
        if not _is_live(settings, record)
    }
    # The phase of an unreadable record is unknown, so its name stays taken.
    return sorted(dead_names | set(find_unreadable(settings)))


def find_unreadable(settings: HostSettings) -> dict[str, str]:
    """Return ``{name: reason and remedy}`` of the VMs with a record that cannot be read."""
    records_folder = folder(settings)
    unreadable_records = (
        records.find_unreadable(records_folder, purpose) for purpose in (*SETTLED_HERE, *_MOVES)
    )
    return {name: reason for reasons in unreadable_records for name, reason in reasons.items()}


def end(settings: HostSettings, locked_record: records.LockedRecord) -> None:
    """End a record; jobs that have read the domains before read them again."""
    path = Path(settings.state_dir) / "claims.ended"
    try:
        path.write_text(uuid.uuid4().hex)
    except OSError as exc:
        raise files.write_error(f"cannot write {path}", exc) from exc
    locked_record.end()


def last_end(settings: HostSettings) -> str:
    """Return a text that changes before any record ends."""
    try:
        return (Path(settings.state_dir) / "claims.ended").read_text()
    except FileNotFoundError:
        return ""


def find_records(
    settings: HostSettings, purpose: str, name: str, uuid: str | None
) -> list[records.Record]:
    """
    Return a VM's records of a purpose: of its name, and of its UUID under another name.

    purpose
        ``build``, ``purge``, ``diskmove``, ``departure`` or ``arrival``.
    uuid
        The VM's UUID, as the VM may have been renamed since the record began. None if unknown.
    """
    named_record = records.read_record(folder(settings), purpose, name)
    renamed_records = [
        record
        for record in (_read_records(settings, purpose) if uuid else ())
        if record.name != name and _facts(record).uuid == uuid
    ]
    return renamed_records if named_record is None else [named_record, *renamed_records]


def display_name(record: records.Record, name: str) -> str:
    """Return a VM's name for messages, with the name on its record if that differs."""
    return repr(name) if record.name == name else f"{name!r} (on record as {record.name!r})"


def refuse_moving(settings: HostSettings, name: str, uuid: str | None = None) -> None:
    """
    Raise NameTaken if a VM of this name, or UUID, moves to or from this host.

    Raise it also while a command clones the VM, or moves one of its disks.
    """
    refuse_on_its_way(settings, name, uuid)
    refuse_copied(settings, name, uuid)


def refuse_copied(settings: HostSettings, name: str, uuid: str | None = None) -> None:
    """Raise NameTaken while a command clones a VM, or moves one of its disks."""
    for record in find_records(settings, diskprotocol.PURPOSE, name, uuid):
        if _is_live(settings, record):
            raise NameTaken(
                f"disk {record.read(DiskMoveFacts).target} of VM {display_name(record, name)} has "
                f"been moved to another file since {record.since_text}; wait until that is over"
            )
    for record in _read_records(settings, "build"):
        if record.read(BuildFacts).source == name and _is_live(settings, record):
            raise NameTaken(
                f"VM {name!r} has been cloned as {record.name!r} since {record.since_text}; wait "
                "until that is over"
            )


def refuse_on_its_way(settings: HostSettings, name: str, uuid: str | None = None) -> None:
    """Raise NameTaken if a VM of this name, or UUID, is on its way to or from this host."""
    for purpose, activity in _MOVES.items():
        for record in find_records(settings, purpose, name, uuid):
            if record.phase == moveprotocol.CANCELLED:
                continue
            raise NameTaken(
                f"VM {display_name(record, name)} has been {activity} since {record.since_text} "
                f"({record.phase}); wait until that is over, or if it was interrupted, "
                f"have both hosts asked: salt-run virt.settle {record.name}"
            )


def refuse_building(settings: HostSettings, name: str) -> None:
    """
    Raise NameTaken if a VM of this name is being built here, or purged, or was interrupted.

    An interrupted move of a disk counts, too.
    """
    records_folder = folder(settings)
    disk_record = records.read_record(records_folder, diskprotocol.PURPOSE, name)
    if disk_record is not None:
        facts = disk_record.read(DiskMoveFacts)
        raise NameTaken(
            f"the move of disk {facts.target} of VM {name!r} is not over; wait until it is, or if "
            f"it was interrupted, run it again: {move_again(name, facts)}"
        )
    if any(records.read_record(records_folder, purpose, name) for purpose in ("build", "purge")):
        raise NameTaken(
            f"VM {name!r} is being built or purged on this host: wait until that is over; if it "
            "was interrupted, what it left behind cannot be removed, and the minion's log says why"
        )


def move_again(name: str, facts: DiskMoveFacts) -> str:
    """Return the command that settles an interrupted move of a disk, and then goes on with it."""
    words = shlex.join([name, facts.target, f"pool={facts.pool}"])
    return f"salt-run virt.move_disk {words}"


def coming_files(settings: HostSettings, name: str) -> dict[str, str]:
    """Return ``{path: VM}`` of files made, or taken, here for VMs other than the named one."""
    return {
        path: record.name
        for record in _read_records(settings, "build", "arrival", diskprotocol.PURPOSE)
        if record.name != name
        for path in (*_facts(record).paths, *_read_taken_disks(record))
    }


def _read_taken_disks(record: records.Record) -> list[str]:
    """Return the existing disks that a build takes as they are."""
    facts = _facts(record)
    return (facts.taken or []) if isinstance(facts, BuildFacts) else []


def list_files(settings: HostSettings) -> Iterator[str]:
    """Yield the files that records of builds, purges and moves here name."""
    for record in _read_records(settings, *SETTLED_HERE, *_MOVES):
        facts = _facts(record)
        yield from facts.paths
        yield from _read_taken_disks(record)
        yield from [facts.old] if isinstance(facts, DiskMoveFacts) else []


def going_files(settings: HostSettings) -> dict[str, str]:
    """
    Return ``{path: owner and remedy}`` of files that are removed here, now or later.

    These are the files of VMs that leave this host or are purged, existing or not: settling such a
    record removes any file at these paths. So does a disk's move with the file that the disk had.
    """
    return {path: words for path, (_vm, words) in going_by_vm(settings).items()}


def going_by_vm(settings: HostSettings) -> dict[str, tuple[str, str]]:
    """Return ``{path: (VM, owner and remedy)}`` of the files in :func:`going_files`."""
    owners_by_path = {
        facts.old: (
            name,
            f"of VM {name!r}, whose disk is being moved to {facts.new}; wait until that is over, "
            f"or if it was interrupted: {move_again(name, facts)}",
        )
        for name, facts in _read_disk_moves(settings)
    }
    for record in _read_records(settings, "departure", "purge"):
        facts, activity, command = _facts(record), "being purged here", "virt.purge"
        volumes: list[str] = []
        if isinstance(facts, DepartureFacts):
            if record.phase == moveprotocol.CANCELLED or not facts.leaves:
                continue
            activity, command = _MOVES["departure"], "virt.settle"
        elif isinstance(facts, PurgeFacts):
            volumes = ["/".join(volume[:2]) for volume in facts.volumes or []]
        reason = (
            f"of VM {record.name!r}, which is {activity}; wait until that is over, or if it was "
            f"interrupted: salt-run {command} {record.name}"
        )
        owners_by_path |= dict.fromkeys([*facts.paths, *volumes], (record.name, reason))
    return owners_by_path


def _read_disk_moves(settings: HostSettings) -> list[tuple[str, DiskMoveFacts]]:
    return [
        (record.name, record.read(DiskMoveFacts))
        for record in _read_records(settings, diskprotocol.PURPOSE)
    ]


def refuse_taken(settings: HostSettings, name: str, paths: Iterable[str]) -> None:
    """
    Raise StorageError if a file exists, or is on record for another VM that comes or goes.

    Call it under the host's lock, and record the paths under the same lock: the first job to record
    a path makes the file, and no other job removes it.
    """
    paths = list(paths)
    refuse_on_record(settings, name, paths)
    for path in paths:
        if os.path.lexists(path):
            raise StorageError(f"a file {path} is there already")


def refuse_on_record(settings: HostSettings, name: str, paths: Iterable[str]) -> None:
    """Raise StorageError if a file is on record for another VM that comes or goes."""
    vms_by_path, reasons_by_path = coming_files(settings, name), going_files(settings)
    for path in paths:
        if path in reasons_by_path:
            raise StorageError(f"{path} is a file {reasons_by_path[path]}")
        if path in vms_by_path:
            raise StorageError(
                f"{path} is to be a file of VM {vms_by_path[path]!r}, which is being built here or "
                "on its way here; wait until that is over, or choose another name"
            )


def refuse_coming(settings: HostSettings, paths: Iterable[str]) -> None:
    """
    Raise StorageError if a file is being made, or taken, for a VM that is built or sent here now.

    Leftovers of an interrupted build are not refused: its errors tell the operator to remove them.
    """
    records_folder = folder(settings)
    real_paths = {path: os.path.realpath(path) for path in paths}
    for path, vm in coming_files(settings, "").items():
        arrival = records.read_record(records_folder, "arrival", vm)
        is_sent = arrival is not None and arrival.phase in _COMING
        is_same_file = path in real_paths or os.path.realpath(path) in real_paths.values()
        makers = ("build", diskprotocol.PURPOSE)
        is_made = any(records.is_live(records_folder, purpose, vm) for purpose in makers)
        if is_same_file and (is_sent or is_made):
            raise StorageError(
                f"{path} is to be a file of VM {vm!r}, which is being built here or on its way "
                "here; wait until that is over, or if it was interrupted: "
                f"salt-run virt.settle {vm}"
            )


@contextmanager
def reserve(
    settings: HostSettings,
    requirements: Requirements,
    domain_uuid: str,
    check: Callable[[], None],
    source: str | None = None,
) -> Iterator[records.LockedRecord]:
    """
    Yield the record of a build, begun with the room that its VM needs.

    domain_uuid
        The UUID of the new VM.
    check
        Called under the host's lock; raises if this host cannot take the VM.
    source
        The VM to clone, which must not change meanwhile. Defaults to none.
    """
    with ExitStack() as stack:
        with host_lock(settings):
            refuse_moving(settings, requirements.name)
            record_context = records.hold_record(folder(settings), "build", requirements.name)
            locked_record = stack.enter_context(record_context)
            if locked_record is None:
                raise NameTaken(
                    f"VM {requirements.name!r} is being built on this host at this moment"
                )
            if locked_record.record is not None:
                raise StorageError(
                    f"what an interrupted virt.init of {requirements.name!r} has left cannot be "
                    "removed; the minion's log says why: "
                    f"{', '.join(_facts(locked_record.record).paths)}"
                )
            check()
            stocks = dict(requirements.stocks)
            facts = BuildFacts(
                uuid=domain_uuid, paths=[], source=source, **room(requirements), stocks=stocks
            )
            locked_record.begin(uuid.uuid4().hex, moveprotocol.MAKING, **wire.plain(facts))
        yield locked_record


def room(requirements: Requirements) -> dict[str, Any]:
    """Return the fields of a record that reserve the room of a VM."""
    return {
        "vcpus": requirements.vcpus,
        "memory_mib": requirements.memory_mib,
        "disk_mib": requirements.disk_mib,
        "affinity": list(requirements.affinity),
        "anti_affinity": list(requirements.anti_affinity),
    }
