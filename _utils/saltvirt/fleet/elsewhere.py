"""Whether a VM whose move is not over is on a third host, to which somebody may have moved it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from saltvirt import protocol, wire
from saltvirt.fleet import hints, inventory, minions
from saltvirt.fleet.cloud import Cloud
from saltvirt.parts import Elsewhere, State, Target
from saltvirt.placement.answers import Presence
from saltvirt.records import ShownRecord

_STATE = "virt.migration_state"
_SHUTDOWN = "shutdown"
_UNASKED = "this master does not know it as a hypervisor any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The move whose VM is looked for; ``uuid`` is None if nobody knows it."""

    name: str
    token: str
    uuid: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Third:
    """
    What a third host says of the VM.

    by_name
        Of the VM of its name.
    by_uuid
        Of the one with its UUID, whatever it is called there.
    on_record
        ``{name: [record]}`` of all moves that the host has on record.
    """

    by_name: Presence
    by_uuid: Target
    on_record: Mapping[str, Iterable[ShownRecord]] = field(default_factory=dict)


def classify_third_host(move: Move, third: Third) -> str | None:
    """
    Return in which field of :class:`saltvirt.parts.Elsewhere` a host is; None if it is in none.

    What runs is the VM, and so is what is off, unless another move that is not over may still
    decide that it is not, or only its definition was kept.
    """
    presence = _presence_of_vm(move, third.by_name)
    is_here = third.by_uuid.has or presence.state is not None
    if third.by_uuid.is_arriving:
        return "coming"
    if is_here and presence.state != _SHUTDOWN:
        return "has"
    phases = _undecided_phases(move, third.on_record)
    if not phases.isdisjoint(protocol.LEAVES):
        return "leaving"
    if phases or presence.building:
        return "coming"
    return "has" if is_here and presence.moved_to is None else None


def _presence_of_vm(move: Move, presence: Presence) -> Presence:
    """Return what a host says of a VM by its name, if that is not another VM's name there."""
    is_another = None not in (presence.uuid, move.uuid) and presence.uuid != move.uuid
    return Presence(state=None, building=False, unfinished=False) if is_another else presence


def _undecided_phases(move: Move, on_record: Mapping[str, Iterable[ShownRecord]]) -> set[str]:
    """Return the phases of all other moves of the VM that are still to be decided."""
    phases = set()
    for name, records in on_record.items():
        for record in records:
            has_uuids = None not in (record.uuid, move.uuid)
            is_same_vm = record.uuid == move.uuid if has_uuids else name == move.name
            if is_same_vm and record.token != move.token:
                phases.add(record.phase)
    return phases - protocol.DECIDED


def look(cloud: Cloud, move: Move, move_hosts: set[str | None]) -> Elsewhere:
    """Return what all hypervisors but these say of a VM; it is told by its name and its UUID."""
    third_hosts = [host for host in inventory.all_hosts(cloud) if host not in move_hosts]
    presence_survey = inventory.survey(cloud, third_hosts, "virt.presence", [move.name])
    state_survey = inventory.survey(cloud, presence_survey.answers, _STATE)
    by_uuid, unread_reasons = _ask_by_uuid(cloud, state_survey.answers, move)
    hosts_by_field: dict[str, list[str]] = {"has": [], "leaving": [], "coming": []}
    for host, target_state in sorted(by_uuid.items()):
        on_record = state_survey.answers[host]
        third = Third(
            by_name=presence_survey.answers[host], by_uuid=target_state, on_record=on_record
        )
        field_name = classify_third_host(move, third)
        if field_name is not None:
            hosts_by_field[field_name].append(host)
    unresponsive_hosts = {**unread_reasons, **state_survey.reasons(), **presence_survey.reasons()}
    # One that was taken off the list, or is another master's, may have it all the same.
    moved_to_hosts = {
        presence.moved_to for presence in presence_survey.answers.values() if presence.moved_to
    }
    hinted_hosts = {*hints.find_hosts(cloud.opts, move.name), *moved_to_hosts} - {
        *third_hosts,
        *move_hosts,
    }
    unresponsive_hosts |= dict.fromkeys(hinted_hosts - {*unresponsive_hosts}, _UNASKED)
    return Elsewhere(
        silent=tuple(f"{h} ({reason})" for h, reason in sorted(unresponsive_hosts.items())),
        **hosts_by_field,
    )


def _ask_by_uuid(
    cloud: Cloud, third_hosts: Iterable[str], move: Move
) -> tuple[dict[str, Target], dict[str, str]]:
    """Return what hosts say of a VM, maybe by another name, and why others have not said it."""
    targets_by_host, reasons_by_host = {}, {}
    kwarg = {"token": move.token, "uuid": move.uuid}
    for host, reply in minions.ask(cloud, third_hosts, _STATE, [move.name], kwarg).items():
        if not reply.ok:
            reasons_by_host[host] = reply.error or "does not answer"
            continue
        try:
            answer: State = wire.read(host, _STATE, State, reply.value)
        except wire.BadAnswer as error:
            reasons_by_host[host] = str(error)
            continue
        targets_by_host[host] = answer.target
    return targets_by_host, reasons_by_host
