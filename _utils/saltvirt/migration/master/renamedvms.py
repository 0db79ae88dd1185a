"""
Find evacuated VMs that were renamed since: by their UUIDs, which a rename keeps.

These are pure functions over plain data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from saltvirt.migration.master import evacuationnotes
from saltvirt.migration.master.evacuationnotes import EvacuatedVms, Notes, Uuids


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a VM is, and its name there."""

    host: str
    name: str


def list_lost(away: EvacuatedVms, uuids: Uuids) -> dict[str, str]:
    """
    Return ``{UUID: name on record}`` of the VMs that may have another name by now.

    uuids
        Those of the VMs with a proved record.
    """
    names = (*away.removed, *away.elsewhere)
    return {uuid: name for name in names if (uuid := uuids.get(name)) is not None}


def find(lost: Mapping[str, str], uuids_by_host: Mapping[str, Uuids]) -> dict[str, list[Place]]:
    """Return ``{name on record: places}`` of the VMs that a host has by another name."""
    out: dict[str, list[Place]] = {}
    for host, uuids in sorted(uuids_by_host.items()):
        for name, uuid in sorted(uuids.items()):
            noted_name = lost.get(uuid or "")
            if noted_name not in (None, name):
                out.setdefault(noted_name, []).append(Place(host=host, name=name))
    return out


def follow(
    away: EvacuatedVms,
    places: Mapping[str, list[Place]],
    notes: Notes,
    host: str,
    unasked: Mapping[str, str],
    uuids: Uuids,
) -> tuple[EvacuatedVms, dict[str, str]]:
    """
    Return what has become of a host's VMs, and ``{name on record: present name}`` of some.

    unasked
        ``{host: reason}`` of the hosts that may have a VM by another name, and cannot be asked.
    """
    out = replace(
        away,
        to_return=dict(away.to_return),
        at_home=list(away.at_home),
        removed=[],
        elsewhere={name: at for name, at in away.elsewhere.items() if name not in places},
        uncertain=dict(away.uncertain),
    )
    for name in away.removed:
        if name not in places:
            _sort_unseen(out, name, unasked if name in uuids else {})
    for name, found in places.items():
        _sort_seen(out, name, found, host, evacuationnotes.trail(notes, host, name))
    return out, {name: found[0].name for name, found in places.items() if len(found) == 1}


def _sort_unseen(out: EvacuatedVms, name: str, unasked: Mapping[str, str]) -> None:
    """Add a VM that no host has by any name that is known."""
    if unasked:
        out.uncertain[name] = (
            f"no hypervisor that answers has it by that name, and {', '.join(sorted(unasked))} "
            "cannot be asked for another name"
        )
    else:
        out.removed.append(name)


def _sort_seen(
    out: EvacuatedVms, name: str, found: list[Place], host: str, trail: list[str]
) -> None:
    """Add a VM that was renamed, by the places where hosts have it."""
    if len(found) > 1:
        places_text = " and ".join(f"{place.host} as {place.name}" for place in found)
        out.uncertain[name] = f"it is on {places_text} at this moment; run this again"
    elif found[0].host == host:
        out.at_home.append(name)
    elif found[0].host in trail:
        out.to_return[name] = found[0].host
    else:
        out.elsewhere[name] = found[0].host
