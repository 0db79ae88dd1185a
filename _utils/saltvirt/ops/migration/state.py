"""What a host says of the moves of its VMs, for whoever brings them to their end."""

import os
from typing import Any

from saltvirt import content, protocol, records
from saltvirt.config import HostSettings
from saltvirt.kvm import lifecycle, migrate
from saltvirt.ops import reservations, unfinished
from saltvirt.ops.migration import departure, legacy, reach
from saltvirt.parts import Source, State, Target
from saltvirt.records import Record

# What libvirt says of a domain that it does not have.
_ABSENT = dict.fromkeys(
    ("is_here", "is_arriving", "has_job", "is_whole", "stays", "is_handed"), False
)


def every(settings: HostSettings) -> dict[str, list[records.Shown]]:
    """Return ``{name: [record]}`` of all moves that this host has on record."""
    legacy.adopt(settings)
    unfinished.sweep_locks(settings)
    place = reservations.folder(settings)
    out: dict[str, list[records.Shown]] = {}
    for purpose in ("departure", "arrival"):
        for record in records.every(place, purpose):
            out.setdefault(record.name, []).append(_shown(record))
        for name, why in records.unreadable(place, purpose).items():
            out.setdefault(name, []).append(_broken(why))
    for name, why in legacy.unreadable(settings).items():
        out.setdefault(name, []).append(_broken(why))
    return out


def _shown(record: Record) -> records.Shown:
    target = record.facts.get("target")
    return records.Shown(
        purpose=record.purpose,
        token=record.token,
        phase=record.phase,
        since=record.since,
        uuid=record.facts.get("uuid"),
        source=record.facts.get("source"),
        # A move by hand may have noted a URI, and nobody can be asked by that.
        target=target and reach.uri_of(target)[1].strip("[]"),
    )


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


def of(conn: Any, settings: HostSettings, name: str, token: str, uuid: str | None) -> State:
    """
    Return what this host says of one move, as its source and as its target.

    uuid
        The VM's, None if nobody knows it: then it is told by its name.
    """
    legacy.adopt(settings)
    legacy.refuse_unreadable(settings, name)
    place = reservations.folder(settings)
    leaving, coming = (records.look(place, one, name) for one in ("departure", "arrival"))
    is_anothers = _is_anothers(leaving, token)
    leaving, coming = _own(leaving, token), _own(coming, token)
    here = name if uuid is None else lifecycle.name_of(conn, uuid)
    seen = _seen(conn, here, leaving) if here and lifecycle.is_defined(conn, here) else _ABSENT
    is_arriving = seen["is_arriving"]
    return State(
        source=Source(
            phase=_source_phase(settings, leaving, token),
            is_live=not is_anothers and records.is_live(place, "departure", name),
            is_moving=seen["has_job"] and not is_arriving,
            has=seen["is_whole"] and not is_arriving,
            stays=seen["stays"],
            is_handed=seen["is_handed"],
        ),
        target=Target(
            phase=coming.phase if coming else None,
            is_live=records.is_live(place, "arrival", name),
            is_arriving=is_arriving,
            has=seen["is_here"] and not is_arriving,
            is_empty=coming is not None and _is_empty(coming, seen["is_here"]),
        ),
        noted={} if leaving is None else departure.noted(leaving.facts),
    )


def _seen(conn: Any, here: str, leaving: Record | None) -> dict[str, bool]:
    """Return what libvirt says of a domain that it has."""
    was_running = leaving is not None and leaving.facts["was_running"]
    return {
        "is_here": True,
        "is_arriving": lifecycle.is_arriving(conn, here),
        "has_job": lifecycle.is_active(conn, here) and bool(migrate.status(conn, here)),
        "is_whole": all(os.path.exists(path) for path in lifecycle.file_paths(conn, here)),
        "stays": was_running and lifecycle.runs_alone(conn, here),
        "is_handed": was_running and lifecycle.is_migrated(conn, here),
    }


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


def _is_empty(coming: Record, is_here: bool) -> bool:
    made = coming.facts.get("untouched")
    # Of a VM of which no file was made here, none says that it did not come.
    if not made:
        return False
    # One that is missing was removed, by whoever gave this up; a VM that is here may need it.
    return all(
        content.signature(path) == was if os.path.exists(path) else not is_here
        for path, was in made.items()
    )
