"""Whether a VM whose move is not over is on a third host, to which somebody may have moved it."""

from collections.abc import Iterable

from saltvirt import protocol, wire
from saltvirt.fleet import inventory, minions, sightings
from saltvirt.fleet.cloud import Cloud
from saltvirt.parts import Elsewhere, State

_STATE = "virt.migration_state"
_LEFT = (protocol.HANDING, protocol.LEAVING)
_OFF = "shutdown"


def look(cloud: Cloud, name: str, token: str, uuid: str | None, but: set[str | None]) -> Elsewhere:
    """Return what all hypervisors but these say of a VM; it is told by its name and its UUID."""
    others = [host for host in inventory.every(cloud) if host not in but]
    if not others:
        return Elsewhere()
    found = inventory.survey(cloud, others, "virt.presence", [name])
    moves = inventory.survey(cloud, found.answers, _STATE)
    by_uuid, mute = _by_uuid(cloud, found.answers, name, {"token": token, "uuid": uuid})
    has = set(by_uuid)
    for host, one in sightings.of_presence(found.answers).items():
        phases = {known.phase for known in moves.answers.get(host, {}).get(name, ())}
        # What another move has left there is not the VM.
        is_left = not phases.isdisjoint(_LEFT) and one.state in (None, _OFF)
        if one.moved_to is not None or is_left:
            has.discard(host)
        elif one.state is not None or one.building:
            has.add(host)
    silent = sorted({**mute, **moves.reasons(), **found.reasons()}.items())
    return Elsewhere(has=tuple(sorted(has)), silent=tuple(f"{h} ({why})" for h, why in silent))


def _by_uuid(
    cloud: Cloud, others: Iterable[str], name: str, move: dict[str, str | None]
) -> tuple[set[str], dict[str, str]]:
    """Return the hosts that have a VM, maybe by another name, and why others have not said it."""
    has, silent = set(), {}
    for host, reply in minions.ask(cloud, others, _STATE, [name], move).items():
        if not reply.ok:
            silent[host] = reply.error or "does not answer"
            continue
        try:
            said: State = wire.read(host, _STATE, State, reply.value)
        except wire.BadAnswer as error:
            silent[host] = str(error)
            continue
        if said.target.has or said.target.is_arriving:
            has.add(host)
    return has, silent
