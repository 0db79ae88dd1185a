"""A host's view of the moves of its VMs, by which the master settles them."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from saltvirt.core import filecontent
from saltvirt.core.journal import records
from saltvirt.core.journal.movefacts import ArrivalFacts, DepartureFacts, Noted
from saltvirt.core.journal.records import Record
from saltvirt.core.options.config import HostSettings
from saltvirt.core.protocol import moveprotocol
from saltvirt.core.protocol.effects import Source, State, Target
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import halves, lifecycle, migrate
from saltvirt.migration.host import departure, peer
from saltvirt.vm.recovery.host import unfinished


@dataclass(frozen=True, slots=True, kw_only=True)
class _DomainState:
    """libvirt's view of a VM; all False if libvirt does not have the VM."""

    is_here: bool = False
    is_kept: bool = False
    is_arriving: bool = False
    has_job: bool = False
    is_cut: bool = False
    is_whole: bool = False
    stays: bool = False
    is_handed: bool = False


def read_moves(settings: HostSettings) -> dict[str, list[records.ShownRecord]]:
    """Return ``{name: [record]}`` of all moves recorded on this host."""
    unfinished.sweep_locks(settings)
    records_folder = reservations.folder(settings)
    out: dict[str, list[records.ShownRecord]] = {}
    for purpose in ("departure", "arrival"):
        for record in records.read_records(records_folder, purpose):
            out.setdefault(record.name, []).append(_show_record(record))
        for name, reason in records.find_unreadable(records_folder, purpose).items():
            out.setdefault(name, []).append(_show_unreadable(reason))
    return out


def _show_record(record: Record) -> records.ShownRecord:
    uuid, source, target = _read_route(record)
    return records.ShownRecord(
        purpose=record.purpose,
        token=record.token,
        phase=record.phase,
        since=record.since,
        uuid=uuid,
        source=source,
        target=target,
    )


def _read_route(record: Record) -> tuple[str | None, str | None, str | None]:
    """Return the UUID of a record's VM, and the source and target if they are recorded."""
    if record.purpose == "arrival":
        arrival_facts = record.read(ArrivalFacts)
        return arrival_facts.uuid, arrival_facts.source, None
    departure_facts = record.read(DepartureFacts)
    # A move by hand may have recorded a URI, but the master knows hosts by name.
    return departure_facts.uuid, None, peer.uri_of(departure_facts.target)[1].strip("[]")


def _show_unreadable(reason: str) -> records.ShownRecord:
    """Return a shown record in place of a record that cannot be read."""
    return records.ShownRecord(
        purpose="unreadable",
        token="",
        phase="unreadable",
        since=0,
        uuid=None,
        source=None,
        target=None,
        error=reason,
    )


def read_state(
    conn: Any,
    settings: HostSettings,
    name: str,
    token: str,
    uuid: str | None,
    paths: Collection[str] | None = None,
) -> State:
    """
    Return this host's view of a single move, as its source and as its target.

    uuid
        The VM's UUID; None if unknown, to identify the VM by its name.
    paths
        The VM's disk files as its source recorded them; None to skip the check for them.
    """
    records_folder = reservations.folder(settings)
    departure_record, arrival_record = (
        records.read_record(records_folder, purpose, name) for purpose in ("departure", "arrival")
    )
    has_other_move = _is_anothers(departure_record, token)
    departure_record, arrival_record = (
        _filter_by_token(departure_record, token),
        _filter_by_token(arrival_record, token),
    )
    facts = departure_record.read(DepartureFacts) if departure_record else None
    domain_state = _read_domain_state(
        conn, name if uuid is None else lifecycle.name_of(conn, uuid), facts
    )
    return State(
        source=Source(
            phase=_source_phase(settings, departure_record, token),
            is_live=not has_other_move and records.is_live(records_folder, "departure", name),
            is_moving=domain_state.has_job,
            is_cut=domain_state.is_cut and not domain_state.is_arriving,
            has=domain_state.is_whole and not domain_state.is_arriving,
            has_files=facts is not None and facts.leaves and any(map(os.path.exists, facts.paths)),
            stays=domain_state.stays,
            is_handed=domain_state.is_handed,
        ),
        target=_target(
            arrival_record,
            domain_state,
            paths,
            is_live=records.is_live(records_folder, "arrival", name),
        ),
        noted=facts.noted if facts else Noted(),
        disks=facts.own_disks if facts else [],
    )


def _target(
    arrival_record: Record | None,
    domain_state: _DomainState,
    paths: Collection[str] | None,
    *,
    is_live: bool,
) -> Target:
    signatures = arrival_record.read(ArrivalFacts).untouched if arrival_record else None
    return Target(
        phase=arrival_record.phase if arrival_record else None,
        is_live=is_live,
        is_arriving=domain_state.is_arriving,
        is_cut=domain_state.is_cut and domain_state.is_arriving,
        has=domain_state.is_here and not (domain_state.is_arriving or domain_state.is_kept),
        # The disks of a VM that is here may have been moved to other files.
        has_disks=domain_state.is_whole
        if domain_state.is_here
        else all(map(os.path.exists, paths or ())),
        is_empty=_is_empty(signatures, domain_state.is_here),
    )


def _read_domain_state(
    conn: Any, name: str | None, departure_facts: DepartureFacts | None
) -> _DomainState:
    """Return libvirt's view of a VM; ``name`` is None if libvirt does not know the VM."""
    if name is None or not lifecycle.is_defined(conn, name):
        return _DomainState()
    was_running = departure_facts is not None and departure_facts.was_running
    is_arriving = halves.is_arriving(conn, name)
    # On the receiving host libvirt has no figures of the job, and raises an error.
    may_send = lifecycle.is_active(conn, name) and not is_arriving
    return _DomainState(
        is_here=True,
        # A running domain is the VM, even if its definition is marked as moved.
        is_kept=lifecycle.moved_to(conn, name) is not None and not lifecycle.is_active(conn, name),
        is_arriving=is_arriving,
        has_job=may_send and bool(migrate.read_current_job(conn, name)),
        is_cut=halves.has_failed_postcopy(conn, name),
        is_whole=all(os.path.exists(path) for path in lifecycle.file_paths(conn, name)),
        stays=was_running and halves.runs_alone(conn, name),
        is_handed=was_running and lifecycle.is_migrated(conn, name),
    )


def _is_anothers(departure_record: Record | None, token: str) -> bool:
    """Return whether another move has the departure record, so that this move has no job here."""
    if departure_record is None or departure_record.phase == moveprotocol.CANCELLED:
        return False
    return departure_record.token != token


def _filter_by_token(record: Record | None, token: str) -> Record | None:
    return record if record is not None and record.token == token else None


def _source_phase(
    settings: HostSettings, departure_record: Record | None, token: str
) -> str | None:
    if departure_record is not None:
        return departure_record.phase
    return moveprotocol.CANCELLED if departure.is_cancelled_for_good(settings, token) else None


def _is_empty(signatures: Mapping[str, list[int]] | None, is_here: bool) -> bool:
    """Return whether files are unchanged since they were made, according to their signatures."""
    # If no file was made here, nothing proves that the VM has not arrived.
    if not signatures:
        return False
    # A missing file was removed when the move was given up; but a VM that is here may need it.
    return all(
        filecontent.signature(path) == old_signature if os.path.exists(path) else not is_here
        for path, old_signature in signatures.items()
    )
