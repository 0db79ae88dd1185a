"""Whether a VM whose move is not over is on a third host, to which somebody may have moved it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from saltvirt import protocol, wire
from saltvirt.fleet import hints, inventory, minions
from saltvirt.fleet.cloud import Cloud
from saltvirt.parts import Elsewhere, State, Target
from saltvirt.placement.answers import Presence
from saltvirt.records import Shown

_STATE = "virt.migration_state"
_OFF = "shutdown"
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
    on_record: Mapping[str, Iterable[Shown]] = field(default_factory=dict)


def standing(move: Move, third: Third) -> str | None:
    """
    Return in which field of :class:`saltvirt.parts.Elsewhere` a host is; None if it is in none.

    What runs is the VM, and so is what is off, unless another move that is not over may still
    decide that it is not, or only its definition was kept.
    """
    seen = _of_it(move, third.by_name)
    is_here = third.by_uuid.has or seen.state is not None
    if third.by_uuid.is_arriving:
        return "coming"
    if is_here and seen.state != _OFF:
        return "has"
    phases = _phases(move, third.on_record)
    if not phases.isdisjoint(protocol.LEAVES):
        return "leaving"
    if phases or seen.building:
        return "coming"
    return "has" if is_here and seen.moved_to is None else None


def _of_it(move: Move, seen: Presence) -> Presence:
    """Return what a host says of a VM by its name, if that is not another VM's name there."""
    is_another = None not in (seen.uuid, move.uuid) and seen.uuid != move.uuid
    return Presence(state=None, building=False, unfinished=False) if is_another else seen


def _phases(move: Move, on_record: Mapping[str, Iterable[Shown]]) -> set[str]:
    """Return the phases of all other moves of the VM that are still to be decided."""
    found = set()
    for name, records in on_record.items():
        for one in records:
            knows = None not in (one.uuid, move.uuid)
            is_of_it = one.uuid == move.uuid if knows else name == move.name
            if is_of_it and one.token != move.token:
                found.add(one.phase)
    return found - protocol.DECIDED


def look(cloud: Cloud, move: Move, but: set[str | None]) -> Elsewhere:
    """Return what all hypervisors but these say of a VM; it is told by its name and its UUID."""
    others = [host for host in inventory.every(cloud) if host not in but]
    found = inventory.survey(cloud, others, "virt.presence", [move.name])
    moves = inventory.survey(cloud, found.answers, _STATE)
    by_uuid, mute = _by_uuid(cloud, moves.answers, move)
    stands: dict[str, list[str]] = {"has": [], "leaving": [], "coming": []}
    for host, said in sorted(by_uuid.items()):
        on_record = moves.answers[host]
        third = Third(by_name=found.answers[host], by_uuid=said, on_record=on_record)
        where = standing(move, third)
        if where is not None:
            stands[where].append(host)
    silent = {**mute, **moves.reasons(), **found.reasons()}
    # One that was taken off the list, or is another master's, may have it all the same.
    kept = {one.moved_to for one in found.answers.values() if one.moved_to}
    noted = {*hints.where(cloud.opts, move.name), *kept} - {*others, *but}
    silent |= dict.fromkeys(noted - {*silent}, _UNASKED)
    return Elsewhere(silent=tuple(f"{h} ({why})" for h, why in sorted(silent.items())), **stands)


def _by_uuid(
    cloud: Cloud, others: Iterable[str], move: Move
) -> tuple[dict[str, Target], dict[str, str]]:
    """Return what hosts say of a VM, maybe by another name, and why others have not said it."""
    said, silent = {}, {}
    given = {"token": move.token, "uuid": move.uuid}
    for host, reply in minions.ask(cloud, others, _STATE, [move.name], given).items():
        if not reply.ok:
            silent[host] = reply.error or "does not answer"
            continue
        try:
            answer: State = wire.read(host, _STATE, State, reply.value)
        except wire.BadAnswer as error:
            silent[host] = str(error)
            continue
        said[host] = answer.target
    return said, silent
