"""
Reservations: what is on its way to this host, and the room that it takes.

The records of builds and arrivals tell it. Whoever asks for room and begins a record holds the
host's lock meanwhile, so that no room is given away twice.
"""

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from saltvirt import files, locks, protocol, recordfacts, records, wire
from saltvirt.config import HostSettings
from saltvirt.errors import NameTaken, StorageError
from saltvirt.model import Requirements
from saltvirt.movefacts import ArrivalFacts, DepartureFacts
from saltvirt.ops import legacy, legacymoves
from saltvirt.placement.answers import ComingFacts
from saltvirt.recordfacts import BuildFacts, PurgeFacts

# The phases in which a VM that another host sends has its room here, and is not here yet.
_COMING = (protocol.PREPARING, protocol.READY)
# What a record of a move says of its VM. One that was cancelled has nothing here that is another's;
# of one that was refused there are files, which are removed by their paths.
_MOVES = {"departure": "leaving this host", "arrival": "coming to this host"}


def folder(settings: HostSettings) -> Path:
    """Return the folder of all records of this host."""
    return Path(settings.state_dir) / records.FOLDER


@contextmanager
def open_record(
    settings: HostSettings, purpose: str, name: str, busy_message: str
) -> Iterator[records.LockedRecord]:
    """Yield the record of a VM and purpose under its lock; raise NameTaken(busy) if it is held."""
    with records.hold_record(folder(settings), purpose, name) as locked_record:
        if locked_record is None:
            raise NameTaken(busy_message)
        yield locked_record


@contextmanager
def host_lock(settings: HostSettings) -> Iterator[None]:
    """Hold the lock under which this host's room is looked at and a record begun."""
    records.make_folder(Path(settings.state_dir))
    with locks.hold_lock(Path(settings.state_dir) / "claims.lock"):
        yield


def read_coming_vms(settings: HostSettings) -> dict[str, ComingFacts]:
    """Return ``{name: its room}`` of the VMs that are being built here at this moment, or sent."""
    records_folder = folder(settings)
    claims = {
        name: ComingFacts(**{field.name: claim[field.name] for field in fields(ComingFacts)})
        for name, claim in legacy.read_live_claims(settings).items()
    }
    builds = {
        record.name: _reserved_room(record.read(BuildFacts))
        for record in records.read_records(records_folder, "build")
        if records.is_live(records_folder, "build", record.name)
    }
    arrivals = {
        record.name: _reserved_room(record.read(ArrivalFacts))
        for record in records.read_records(records_folder, "arrival")
        if record.phase in _COMING
    }
    return {**claims, **builds, **arrivals}


def _reserved_room(facts: BuildFacts | ArrivalFacts) -> ComingFacts:
    return ComingFacts(
        vcpus=facts.vcpus,
        memory_mib=facts.memory_mib,
        disk_mib=facts.disk_mib,
        affinity=facts.affinity,
        anti_affinity=facts.anti_affinity,
        stocks=facts.stocks if isinstance(facts, BuildFacts) else {},
    )


def _facts(record: records.Record) -> BuildFacts | PurgeFacts | ArrivalFacts | DepartureFacts:
    """Return what a record of this host says; all of them have the VM's ``uuid`` and ``paths``."""
    shape: Any = recordfacts.shape(record.purpose, record.phase)
    facts: BuildFacts | PurgeFacts | ArrivalFacts | DepartureFacts = record.read(shape)
    return facts


def find_unfinished(settings: HostSettings) -> list[str]:
    """
    Return the names of the VMs whose builder, or whoever purged them, has died over it.

    VMs with a record that cannot be read are among them.
    """
    records_folder = folder(settings)
    dead_names = {
        record.name
        for purpose in ("build", "purge")
        for record in records.read_records(records_folder, purpose)
        if not records.is_live(records_folder, purpose, record.name)
    }
    # Nobody knows how far a record got that cannot be read: the name stays taken.
    return sorted(
        dead_names | set(legacy.read_stale_claims(settings)) | set(find_unreadable(settings))
    )


def find_unreadable(settings: HostSettings) -> dict[str, str]:
    """Return ``{name: why, and what to do}`` of the VMs with a record that cannot be read."""
    records_folder = folder(settings)
    unreadable_records = (
        records.find_unreadable(records_folder, purpose) for purpose in ("build", "purge", *_MOVES)
    )
    reasons_by_name = {
        name: reason for reasons in unreadable_records for name, reason in reasons.items()
    }
    return {**legacymoves.unreadable(settings), **reasons_by_name}


def end(settings: HostSettings, locked_record: records.LockedRecord) -> None:
    """End a record; who has read the domains before it did is told to read them again."""
    note_end(settings)
    locked_record.end()


def note_end(settings: HostSettings) -> None:
    """Change what :func:`last_end` returns."""
    path = Path(settings.state_dir) / "claims.ended"
    try:
        path.write_text(uuid.uuid4().hex)
    except OSError as exc:
        raise files.write_error(f"cannot write {path}", exc) from exc


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
        ``build``, ``purge``, ``departure`` or ``arrival``.
    uuid
        The VM's; somebody may have renamed it since the move began. None if it is not known.
    """
    records_folder = folder(settings)
    named_record = records.read_record(records_folder, purpose, name)
    all_records = records.read_records(records_folder, purpose) if uuid else []
    renamed_records = [
        record for record in all_records if record.name != name and _facts(record).uuid == uuid
    ]
    return renamed_records if named_record is None else [named_record, *renamed_records]


def display_name(record: records.Record, name: str) -> str:
    """Return how a VM is called in a message about a record, under which it may be settled."""
    return repr(name) if record.name == name else f"{name!r} (on record as {record.name!r})"


def refuse_moving(settings: HostSettings, name: str, uuid: str | None = None) -> None:
    """Raise NameTaken if a VM of this name, or UUID, moves to or from this host, or is cloned."""
    refuse_on_its_way(settings, name, uuid)
    refuse_cloned(settings, name)


def refuse_cloned(settings: HostSettings, name: str) -> None:
    """Raise NameTaken if a VM is being cloned on this host at this moment."""
    records_folder = folder(settings)
    for record in records.read_records(records_folder, "build"):
        is_source = record.read(BuildFacts).source == name
        if is_source and records.is_live(records_folder, "build", record.name):
            raise NameTaken(
                f"VM {name!r} has been cloned as {record.name!r} since {record.since_text}; wait "
                "until that is over"
            )


def refuse_on_its_way(settings: HostSettings, name: str, uuid: str | None = None) -> None:
    """Raise NameTaken if a VM of this name, or UUID, is on its way to or from this host."""
    legacymoves.adopt(settings)
    legacymoves.refuse_unreadable(settings, name)
    for purpose, activity in _MOVES.items():
        for record in find_records(settings, purpose, name, uuid):
            if record.phase == protocol.CANCELLED:
                continue
            raise NameTaken(
                f"VM {display_name(record, name)} has been {activity} since {record.since_text} "
                f"({record.phase}); wait until that is over, or if it was interrupted, "
                f"have both hosts asked: salt-run virt.settle {record.name}"
            )


def refuse_building(settings: HostSettings, name: str) -> None:
    """Raise NameTaken if a VM of this name is being built here, or purged, or was interrupted."""
    records_folder = folder(settings)
    if any(records.read_record(records_folder, purpose, name) for purpose in ("build", "purge")):
        raise NameTaken(
            f"VM {name!r} is being built or purged on this host: wait until that is over; if it "
            "was interrupted, what it left behind cannot be removed, and the minion's log says why"
        )


def coming_files(settings: HostSettings, name: str) -> dict[str, str]:
    """Return ``{path: VM}`` of what is made, or taken, here for other VMs than the named one."""
    return {
        path: record.name
        for purpose in ("build", "arrival")
        for record in records.read_records(folder(settings), purpose)
        if record.name != name
        for path in (*_facts(record).paths, *_read_taken_disks(record))
    }


def _read_taken_disks(record: records.Record) -> list[str]:
    """Return the disks that were there already, which a build takes as they are."""
    facts = _facts(record)
    return (facts.taken or []) if isinstance(facts, BuildFacts) else []


def list_files(settings: HostSettings) -> Iterator[str]:
    """Yield the files that any record here names, of VMs that come, go, are built or purged."""
    for purpose in ("build", "purge", *_MOVES):
        for record in records.read_records(folder(settings), purpose):
            yield from _facts(record).paths
            yield from _read_taken_disks(record)


def going_files(settings: HostSettings) -> dict[str, str]:
    """
    Return ``{path: whose it is, and what to do}`` of what is removed here, now or later.

    These are the files of VMs that leave this host or are purged, whether they are there still or
    not: whoever settles that removes what has their names.
    """
    return {path: words for path, (_vm, words) in going_by_vm(settings).items()}


def going_by_vm(settings: HostSettings) -> dict[str, tuple[str, str]]:
    """Return ``{path: (VM, whose it is, and what to do)}`` of what :func:`going_files` returns."""
    records_folder = folder(settings)
    departures = [
        record
        for record in records.read_records(records_folder, "departure")
        if record.phase != protocol.CANCELLED and record.read(DepartureFacts).leaves
    ]
    owners_by_path = {
        path: (
            record.name,
            f"of VM {record.name!r}, which is leaving this host; wait until that is over, or if it "
            f"was interrupted: salt-run virt.settle {record.name}",
        )
        for record in departures
        for path in _facts(record).paths
    }
    for record in records.read_records(records_folder, "purge"):
        reason = (
            f"of VM {record.name!r}, which is being purged here; wait until that is over, or if it "
            f"was interrupted: salt-run virt.purge {record.name}"
        )
        volumes = ["/".join(volume[:2]) for volume in record.read(PurgeFacts).volumes or []]
        owners_by_path |= dict.fromkeys([*_facts(record).paths, *volumes], (record.name, reason))
    return owners_by_path


def refuse_taken(settings: HostSettings, name: str, paths: Iterable[str]) -> None:
    """
    Raise StorageError if a file is there, or is on record for a VM that comes here, or goes.

    It is called under the host's lock, in which the paths are noted then: whoever is noted first
    makes the file, and nobody else removes it.
    """
    paths = list(paths)
    refuse_on_record(settings, name, paths)
    for path in paths:
        if os.path.lexists(path):
            raise StorageError(f"a file {path} is there already")


def refuse_on_record(settings: HostSettings, name: str, paths: Iterable[str]) -> None:
    """Raise StorageError if a file is on record for another VM that comes here, or goes."""
    vms_by_path, reasons_by_path = coming_files(settings, name), going_files(settings)
    for path in paths:
        if path in reasons_by_path:
            raise StorageError(f"{path} is a file {reasons_by_path[path]}")
        if path in vms_by_path:
            raise StorageError(
                f"{path} is to be a file of VM {vms_by_path[path]!r}, which is being built here or "
                "on "
                "its way here; wait until that is over, or choose another name"
            )


def refuse_coming(settings: HostSettings, paths: Iterable[str]) -> None:
    """
    Raise StorageError if a file is just made, or taken, for a VM that is being built here or sent.

    What an interrupted build has left is nobody's: its errors say to remove it by hand.
    """
    records_folder, vms_by_path = folder(settings), coming_files(settings, "")
    real_paths = {path: os.path.realpath(path) for path in paths}
    for path, vm in vms_by_path.items():
        arrival = records.read_record(records_folder, "arrival", vm)
        is_sent = arrival is not None and arrival.phase in _COMING
        is_same_file = path in real_paths or os.path.realpath(path) in real_paths.values()
        if is_same_file and (is_sent or records.is_live(records_folder, "build", vm)):
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

    domain
        The UUID that the VM will have.
    check
        Called under the host's lock; it raises if the VM cannot be here.
    source
        The VM that it is a clone of, which stays as it is meanwhile. Defaults to none.
    """
    with ExitStack() as stack:
        with host_lock(settings):
            refuse_moving(settings, requirements.name)
            record_context = records.hold_record(folder(settings), "build", requirements.name)
            locked_record = stack.enter_context(record_context)
            if locked_record is None or requirements.name in legacy.read_live_claims(settings):
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
            locked_record.begin(uuid.uuid4().hex, protocol.MAKING, **wire.plain(facts))
        yield locked_record


def room(requirements: Requirements) -> dict[str, Any]:
    """Return what a record says of the room that a VM takes."""
    return {
        "vcpus": requirements.vcpus,
        "memory_mib": requirements.memory_mib,
        "disk_mib": requirements.disk_mib,
        "affinity": list(requirements.affinity),
        "anti_affinity": list(requirements.anti_affinity),
    }
