"""Say what placement must know of this host, in a few hundred bytes; see ``placement.brief``."""

from dataclasses import replace
from typing import Any

from saltvirt import profiles
from saltvirt.config import HostSettings
from saltvirt.kvm import query
from saltvirt.ops import inspect, reservations
from saltvirt.placement import brief
from saltvirt.placement.answers import HostInfo, NicPlace
from saltvirt.xml import read


def host_info(conn: Any, settings: HostSettings) -> HostInfo:
    """Return what this host has, with each NIC of its profiles: a call may have it elsewhere."""
    info = inspect.host_info(conn, settings)
    nic = {
        name: one if one.error is not None else replace(one, nics=_places(settings, name))
        for name, one in info.profiles.nic.items()
    }
    return replace(info, profiles=replace(info.profiles, nic=nic))


def _places(settings: HostSettings, name: str) -> dict[str, NicPlace]:
    made = profiles.nics("probe", settings.nic, name, None)
    return {
        one.name: NicPlace(type=one.type, on=one.on, tagged=one.is_tagged, switched=one.is_switched)
        for one in made
    }


def facts(conn: Any, settings: HostSettings, host: str, wanted: brief.About) -> brief.Brief:
    """
    Return the answer of a host to ``virt.placement_facts``.

    host
        Its id, by which it is asked for all, or for names alone.
    """
    if wanted.is_for(host):
        return brief.of(host_info(conn, settings), wanted)
    # First: a record that ends meanwhile is a VM that is listed then.
    building = sorted(reservations.coming(settings))
    own, kept = [], {}
    for one in query.definitions(conn):
        moved_to = read.ours(one.root)["moved_to"]
        if moved_to is None:
            own.append(one.name)
        else:
            kept[one.name] = moved_to
    return brief.Brief(
        names=brief.names(
            wanted,
            own,
            kept=kept,
            building=building,
            unfinished=reservations.unfinished(settings),
            unreadable=inspect.unreadable(conn, settings),
        )
    )
