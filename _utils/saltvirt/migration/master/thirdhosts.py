"""Look for the VM of an unfinished move on third hosts: an operator may have moved it there."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastseen
from saltvirt.cluster.rpc import minions
from saltvirt.core import wire
from saltvirt.core.journal.records import ShownRecord
from saltvirt.core.protocol import moveprotocol
from saltvirt.core.protocol.effects import State, Target, ThirdHosts
from saltvirt.placement.answers import Presence

_STATE = "virt.migration_state"
_SHUTDOWN = "shutdown"
_UNASKED = "this master does not know it as a hypervisor any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The move of the VM to look for; ``uuid`` is None if unknown."""

    name: str
    token: str
    uuid: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Third:
    """
    A third host's answers about the VM.

    by_name
        About the VM of that name.
    by_uuid
        About the VM of that UUID, under any name.
    on_record
        ``{name: [record]}`` of all moves that the host has on record.
    """

    by_name: Presence
    by_uuid: Target
    on_record: Mapping[str, Iterable[ShownRecord]] = field(default_factory=dict)


def classify_third_host(move: Move, third: Third) -> str | None:
    """
    Return the field of :class:`saltvirt.core.protocol.effects.ThirdHosts` for a host; None for no
    field.

    A running domain is the VM. A stopped domain is the VM, too, unless another unfinished move
    may still decide otherwise, or the host only kept the definition.
    """
    presence = _presence_of_vm(move, third.by_name)
    is_here = third.by_uuid.has or presence.state is not None
    if third.by_uuid.is_arriving:
        return "coming"
    if is_here and presence.state != _SHUTDOWN:
        return "has"
    phases = _undecided_phases(move, third.on_record)
    if not phases.isdisjoint(moveprotocol.LEAVES):
        return "leaving"
    if phases or presence.building:
        return "coming"
    return "has" if is_here and presence.moved_to is None else None


def _presence_of_vm(move: Move, presence: Presence) -> Presence:
    """Return a host's presence by name; an empty one if another VM has that name there."""
    is_another = None not in (presence.uuid, move.uuid) and presence.uuid != move.uuid
    return Presence(state=None, building=False, unfinished=False) if is_another else presence


def _undecided_phases(move: Move, on_record: Mapping[str, Iterable[ShownRecord]]) -> set[str]:
    """Return the phases of the VM's other moves that are undecided."""
    phases = set()
    for name, records in on_record.items():
        for record in records:
            has_uuids = None not in (record.uuid, move.uuid)
            is_same_vm = record.uuid == move.uuid if has_uuids else name == move.name
            if is_same_vm and record.token != move.token:
                phases.add(record.phase)
    return phases - moveprotocol.DECIDED


def look(cloud: Cloud, move: Move, move_hosts: set[str | None]) -> ThirdHosts:
    """Return the third hosts' answers about a VM, which its name and UUID identify."""
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
    # A host that was disallowed, or belongs to another master, may still have the VM.
    moved_to_hosts = {
        presence.moved_to for presence in presence_survey.answers.values() if presence.moved_to
    }
    hinted_hosts = {*lastseen.find_hosts(cloud.opts, move.name), *moved_to_hosts} - {
        *third_hosts,
        *move_hosts,
    }
    unresponsive_hosts |= dict.fromkeys(hinted_hosts - {*unresponsive_hosts}, _UNASKED)
    return ThirdHosts(
        silent=tuple(f"{h} ({reason})" for h, reason in sorted(unresponsive_hosts.items())),
        **hosts_by_field,
    )


def _ask_by_uuid(
    cloud: Cloud, third_hosts: Iterable[str], move: Move
) -> tuple[dict[str, Target], dict[str, str]]:
    """Return hosts' answers about a VM under any name, and the reasons of hosts without one."""
    targets_by_host, reasons_by_host = {}, {}
    kwarg = {"token": move.token, "uuid": move.uuid}
    for host, reply in minions.ask(cloud, third_hosts, _STATE, [move.name], kwarg).items():
        if not reply.ok:
            reasons_by_host[host] = reply.reason
            continue
        try:
            answer: State = wire.read(host, _STATE, State, reply.value)
        except wire.BadAnswer as error:
            reasons_by_host[host] = str(error)
            continue
        targets_by_host[host] = answer.target
    return targets_by_host, reasons_by_host
