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
def opened(settings: HostSettings, purpose: str, name: str, busy: str) -> Iterator[records.Held]:
    """Yield the record of a VM and purpose under its lock; raise NameTaken(busy) if it is held."""
    with records.held(folder(settings), purpose, name) as held:
        if held is None:
            raise NameTaken(busy)
        yield held


@contextmanager
def host_lock(settings: HostSettings) -> Iterator[None]:
    """Hold the lock under which this host's room is looked at and a record begun."""
    records.make_folder(Path(settings.state_dir))
    with locks.held(Path(settings.state_dir) / "claims.lock"):
        yield


def coming(settings: HostSettings) -> dict[str, ComingFacts]:
    """Return ``{name: its room}`` of the VMs that are being built here at this moment, or sent."""
    place = folder(settings)
    claims = {
        name: ComingFacts(**{one.name: claim[one.name] for one in fields(ComingFacts)})
        for name, claim in legacy.live(settings).items()
    }
    builds = {
        record.name: _room_of(record.read(BuildFacts))
        for record in records.every(place, "build")
        if records.is_live(place, "build", record.name)
    }
    arrivals = {
        record.name: _room_of(record.read(ArrivalFacts))
        for record in records.every(place, "arrival")
        if record.phase in _COMING
    }
    return {**claims, **builds, **arrivals}


def _room_of(facts: BuildFacts | ArrivalFacts) -> ComingFacts:
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
    found: BuildFacts | PurgeFacts | ArrivalFacts | DepartureFacts = record.read(shape)
    return found


def unfinished(settings: HostSettings) -> list[str]:
    """
    Return the names of the VMs whose builder, or whoever purged them, has died over it.

    VMs with a record that cannot be read are among them.
    """
    place = folder(settings)
    dead = {
        record.name
        for purpose in ("build", "purge")
        for record in records.every(place, purpose)
        if not records.is_live(place, purpose, record.name)
    }
    # Nobody knows how far a record got that cannot be read: the name stays taken.
    return sorted(dead | set(legacy.stale(settings)) | set(unreadable(settings)))


def unreadable(settings: HostSettings) -> dict[str, str]:
    """Return ``{name: why, and what to do}`` of the VMs with a record that cannot be read."""
    place = folder(settings)
    found = (records.unreadable(place, one) for one in ("build", "purge", *_MOVES))
    known = {name: why for purpose in found for name, why in purpose.items()}
    return {**legacymoves.unreadable(settings), **known}


def end(settings: HostSettings, held: records.Held) -> None:
    """End a record; who has read the domains before it did is told to read them again."""
    note_end(settings)
    held.end()


def note_end(settings: HostSettings) -> None:
    """Change what :func:`last_end` returns."""
    path = Path(settings.state_dir) / "claims.ended"
    try:
        path.write_text(uuid.uuid4().hex)
    except OSError as exc:
        raise files.refused(f"cannot write {path}", exc) from exc


def last_end(settings: HostSettings) -> str:
    """Return a text that changes before any record ends."""
    try:
        return (Path(settings.state_dir) / "claims.ended").read_text()
    except FileNotFoundError:
        return ""


def moves(
    settings: HostSettings, purpose: str, name: str, uuid: str | None
) -> list[records.Record]:
    """
    Return a VM's records of a purpose: of its name, and of its UUID under another name.

    purpose
        ``build``, ``purge``, ``departure`` or ``arrival``.
    uuid
        The VM's; somebody may have renamed it since the move began. None if it is not known.
    """
    place = folder(settings)
    named = records.look(place, purpose, name)
    every = records.every(place, purpose) if uuid else []
    renamed = [one for one in every if one.name != name and _facts(one).uuid == uuid]
    return renamed if named is None else [named, *renamed]


def called(record: records.Record, name: str) -> str:
    """Return how a VM is called in a message about a record, under which it may be settled."""
    return repr(name) if record.name == name else f"{name!r} (on record as {record.name!r})"


def refuse_moving(settings: HostSettings, name: str, uuid: str | None = None) -> None:
    """Raise NameTaken if a VM of this name, or UUID, moves to or from this host, or is cloned."""
    refuse_on_its_way(settings, name, uuid)
    refuse_cloned(settings, name)


def refuse_cloned(settings: HostSettings, name: str) -> None:
    """Raise NameTaken if a VM is being cloned on this host at this moment."""
    place = folder(settings)
    for record in records.every(place, "build"):
        is_of_it = record.read(BuildFacts).source == name
        if is_of_it and records.is_live(place, "build", record.name):
            raise NameTaken(
                f"VM {name!r} has been cloned as {record.name!r} since {record.since_text}; wait "
                "until that is over"
            )


def refuse_on_its_way(settings: HostSettings, name: str, uuid: str | None = None) -> None:
    """Raise NameTaken if a VM of this name, or UUID, is on its way to or from this host."""
    legacymoves.adopt(settings)
    legacymoves.refuse_unreadable(settings, name)
    for purpose, doing in _MOVES.items():
        for record in moves(settings, purpose, name, uuid):
            if record.phase == protocol.CANCELLED:
                continue
            raise NameTaken(
                f"VM {called(record, name)} has been {doing} since {record.since_text} "
                f"({record.phase}); wait until that is over, or if it was interrupted, "
                f"have both hosts asked: salt-run virt.settle {record.name}"
            )


def refuse_building(settings: HostSettings, name: str) -> None:
    """Raise NameTaken if a VM of this name is being built here, or purged, or was interrupted."""
    place = folder(settings)
    if any(records.look(place, one, name) for one in ("build", "purge")):
        raise NameTaken(
            f"VM {name!r} is being built or purged on this host: wait until that is over; if it "
            "was interrupted, what it left behind cannot be removed, and the minion's log says why"
        )


def coming_files(settings: HostSettings, name: str) -> dict[str, str]:
    """Return ``{path: VM}`` of what is made, or taken, here for other VMs than the named one."""
    return {
        path: record.name
        for purpose in ("build", "arrival")
        for record in records.every(folder(settings), purpose)
        if record.name != name
        for path in (*_facts(record).paths, *_taken(record))
    }


def _taken(record: records.Record) -> list[str]:
    """Return the disks that were there already, which a build takes as they are."""
    facts = _facts(record)
    return (facts.taken or []) if isinstance(facts, BuildFacts) else []


def every_file(settings: HostSettings) -> Iterator[str]:
    """Yield the files that any record here names, of VMs that come, go, are built or purged."""
    for purpose in ("build", "purge", *_MOVES):
        for record in records.every(folder(settings), purpose):
            yield from _facts(record).paths
            yield from _taken(record)


def going_files(settings: HostSettings) -> dict[str, str]:
    """
    Return ``{path: whose it is, and what to do}`` of what is removed here, now or later.

    These are the files of VMs that leave this host or are purged, whether they are there still or
    not: whoever settles that removes what has their names.
    """
    return {path: words for path, (_vm, words) in going_by_vm(settings).items()}


def going_by_vm(settings: HostSettings) -> dict[str, tuple[str, str]]:
    """Return ``{path: (VM, whose it is, and what to do)}`` of what :func:`going_files` returns."""
    place = folder(settings)
    leaving = [
        one
        for one in records.every(place, "departure")
        if one.phase != protocol.CANCELLED and one.read(DepartureFacts).leaves
    ]
    said = {
        path: (
            one.name,
            f"of VM {one.name!r}, which is leaving this host; wait until that is over, or if it "
            f"was interrupted: salt-run virt.settle {one.name}",
        )
        for one in leaving
        for path in _facts(one).paths
    }
    for one in records.every(place, "purge"):
        why = (
            f"of VM {one.name!r}, which is being purged here; wait until that is over, or if it "
            f"was interrupted: salt-run virt.purge {one.name}"
        )
        volumes = ["/".join(where[:2]) for where in one.read(PurgeFacts).volumes or []]
        said |= dict.fromkeys([*_facts(one).paths, *volumes], (one.name, why))
    return said


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
    others, going = coming_files(settings, name), going_files(settings)
    for path in paths:
        if path in going:
            raise StorageError(f"{path} is a file {going[path]}")
        if path in others:
            raise StorageError(
                f"{path} is to be a file of VM {others[path]!r}, which is being built here or on "
                "its way here; wait until that is over, or choose another name"
            )


def refuse_coming(settings: HostSettings, paths: Iterable[str]) -> None:
    """
    Raise StorageError if a file is just made, or taken, for a VM that is being built here or sent.

    What an interrupted build has left is nobody's: its errors say to remove it by hand.
    """
    place, coming = folder(settings), coming_files(settings, "")
    wanted = {path: os.path.realpath(path) for path in paths}
    for path, vm in coming.items():
        arrival = records.look(place, "arrival", vm)
        is_sent = arrival is not None and arrival.phase in _COMING
        is_it = path in wanted or os.path.realpath(path) in wanted.values()
        if is_it and (is_sent or records.is_live(place, "build", vm)):
            raise StorageError(
                f"{path} is to be a file of VM {vm!r}, which is being built here or on its way "
                "here; wait until that is over, or if it was interrupted: "
                f"salt-run virt.settle {vm}"
            )


@contextmanager
def reserved(
    settings: HostSettings,
    required: Requirements,
    domain: str,
    check: Callable[[], None],
    source: str | None = None,
) -> Iterator[records.Held]:
    """
    Yield the record of a build, begun with the room that its VM needs.

    domain
        The UUID that the VM will have.
    check
        Called under the host's lock; it raises if the VM cannot be here.
    source
        The VM that it is a clone of, which stays as it is meanwhile. Defaults to none.
    """
    with ExitStack() as holding:
        with host_lock(settings):
            refuse_moving(settings, required.name)
            opened = records.held(folder(settings), "build", required.name)
            held = holding.enter_context(opened)
            if held is None or required.name in legacy.live(settings):
                raise NameTaken(f"VM {required.name!r} is being built on this host at this moment")
            if held.record is not None:
                raise StorageError(
                    f"what an interrupted virt.init of {required.name!r} has left cannot be "
                    f"removed; the minion's log says why: {', '.join(_facts(held.record).paths)}"
                )
            check()
            stocks = dict(required.stocks)
            facts = BuildFacts(
                uuid=domain, paths=[], source=source, **room(required), stocks=stocks
            )
            held.begin(uuid.uuid4().hex, protocol.MAKING, **wire.plain(facts))
        yield held


def room(required: Requirements) -> dict[str, Any]:
    """Return what a record says of the room that a VM takes."""
    return {
        "vcpus": required.vcpus,
        "memory_mib": required.memory_mib,
        "disk_mib": required.disk_mib,
        "affinity": list(required.affinity),
        "anti_affinity": list(required.anti_affinity),
    }
