"""What a host says of the moves of its VMs, for whoever brings them to their end."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt import content, protocol, records
from saltvirt.config import HostSettings
from saltvirt.kvm import halves, lifecycle, migrate
from saltvirt.movefacts import ArrivalFacts, DepartureFacts, Noted
from saltvirt.ops import legacymoves, reservations, unfinished
from saltvirt.ops.migration import departure, reach
from saltvirt.parts import Source, State, Target
from saltvirt.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What libvirt says of a VM: nothing of one that it does not have."""

    is_here: bool = False
    is_kept: bool = False
    is_arriving: bool = False
    has_job: bool = False
    is_cut: bool = False
    is_whole: bool = False
    stays: bool = False
    is_handed: bool = False


def every(settings: HostSettings) -> dict[str, list[records.Shown]]:
    """Return ``{name: [record]}`` of all moves that this host has on record."""
    legacymoves.adopt(settings)
    unfinished.sweep_locks(settings)
    place = reservations.folder(settings)
    out: dict[str, list[records.Shown]] = {}
    for purpose in ("departure", "arrival"):
        for record in records.every(place, purpose):
            out.setdefault(record.name, []).append(_shown(record))
        for name, why in records.unreadable(place, purpose).items():
            out.setdefault(name, []).append(_broken(why))
    for name, why in legacymoves.unreadable(settings).items():
        out.setdefault(name, []).append(_broken(why))
    return out


def _shown(record: Record) -> records.Shown:
    uuid, source, target = _way(record)
    return records.Shown(
        purpose=record.purpose,
        token=record.token,
        phase=record.phase,
        since=record.since,
        uuid=uuid,
        source=source,
        target=target,
    )


def _way(record: Record) -> tuple[str | None, str | None, str | None]:
    """Return the UUID of the VM that a record is about, and its source and target if it says."""
    if record.purpose == "arrival":
        coming = record.read(ArrivalFacts)
        return coming.uuid, coming.source, None
    leaving = record.read(DepartureFacts)
    # A move by hand may have noted a URI, and nobody can be asked by that.
    return leaving.uuid, None, reach.uri_of(leaving.target)[1].strip("[]")


def _broken(why: str) -> records.Shown:
    """Return what is said of a record that cannot be read."""
    # A master of the release before asks this host about it by that token, and is told why.
    return records.Shown(
        purpose="unreadable",
        token="",
        phase="unreadable",
        since=0,
        uuid=None,
        source=None,
        target=None,
        error=why,
    )


def of(
    conn: Any,
    settings: HostSettings,
    name: str,
    token: str,
    uuid: str | None,
    paths: Collection[str] | None = None,
) -> State:
    """
    Return what this host says of one move, as its source and as its target.

    uuid
        The VM's, None if nobody knows it: then it is told by its name.
    paths
        The files of its disks, as its source has noted them; None if they are not looked for.
    """
    legacymoves.adopt(settings)
    legacymoves.refuse_unreadable(settings, name)
    place = reservations.folder(settings)
    leaving, coming = (records.look(place, one, name) for one in ("departure", "arrival"))
    is_anothers = _is_anothers(leaving, token)
    leaving, coming = _own(leaving, token), _own(coming, token)
    facts = leaving.read(DepartureFacts) if leaving else None
    seen = _seen(conn, name if uuid is None else lifecycle.name_of(conn, uuid), facts)
    return State(
        source=Source(
            phase=_source_phase(settings, leaving, token),
            is_live=not is_anothers and records.is_live(place, "departure", name),
            is_moving=seen.has_job,
            is_cut=seen.is_cut and not seen.is_arriving,
            has=seen.is_whole and not seen.is_arriving,
            has_files=facts is not None and facts.leaves and any(map(os.path.exists, facts.paths)),
            stays=seen.stays,
            is_handed=seen.is_handed,
        ),
        target=_target(coming, seen, paths, is_live=records.is_live(place, "arrival", name)),
        noted=facts.noted if facts else Noted(),
        disks=facts.own_disks if facts else [],
    )


def _target(
    coming: Record | None, seen: _Seen, paths: Collection[str] | None, *, is_live: bool
) -> Target:
    made = coming.read(ArrivalFacts).untouched if coming else None
    return Target(
        phase=coming.phase if coming else None,
        is_live=is_live,
        is_arriving=seen.is_arriving,
        is_cut=seen.is_cut and seen.is_arriving,
        has=seen.is_here and not (seen.is_arriving or seen.is_kept),
        # Somebody may have moved the disks of a VM that is here to other files.
        has_disks=seen.is_whole if seen.is_here else all(map(os.path.exists, paths or ())),
        is_empty=_is_empty(made, seen.is_here),
    )


def _seen(conn: Any, name: str | None, leaving: DepartureFacts | None) -> _Seen:
    """Return what libvirt says of the VM of a name, None of one that it does not know."""
    if name is None or not lifecycle.is_defined(conn, name):
        return _Seen()
    was_running = leaving is not None and leaving.was_running
    is_arriving = halves.is_arriving(conn, name)
    # At the far end libvirt has no figures of the job, and says so by an error.
    may_send = lifecycle.is_active(conn, name) and not is_arriving
    return _Seen(
        is_here=True,
        # What runs is the VM, whatever its definition says.
        is_kept=lifecycle.moved_to(conn, name) is not None and not lifecycle.is_active(conn, name),
        is_arriving=is_arriving,
        has_job=may_send and bool(migrate.status(conn, name)),
        is_cut=halves.is_cut(conn, name),
        is_whole=all(os.path.exists(path) for path in lifecycle.file_paths(conn, name)),
        stays=was_running and halves.runs_alone(conn, name),
        is_handed=was_running and lifecycle.is_migrated(conn, name),
    )


def _is_anothers(leaving: Record | None, token: str) -> bool:
    """Return whether another move's departure stands, so that no job of this one is at work."""
    if leaving is None or leaving.phase == protocol.CANCELLED:
        return False
    return leaving.token != token


def _own(record: Record | None, token: str) -> Record | None:
    return record if record is not None and record.token == token else None


def _source_phase(settings: HostSettings, leaving: Record | None, token: str) -> str | None:
    if leaving is not None:
        return leaving.phase
    return protocol.CANCELLED if departure.is_buried(settings, token) else None


def _is_empty(made: Mapping[str, list[int]] | None, is_here: bool) -> bool:
    """Return whether files are as they were made; ``made`` are their signatures then."""
    # Of a VM of which no file was made here, none says that it did not come.
    if not made:
        return False
    # One that is missing was removed, by whoever gave this up; a VM that is here may need it.
    return all(
        content.signature(path) == was if os.path.exists(path) else not is_here
        for path, was in made.items()
    )
