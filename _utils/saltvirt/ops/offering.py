"""Say what placement must know of this host, in a few hundred bytes; see ``placement.brief``."""

from typing import Any

from saltvirt.config import HostSettings
from saltvirt.kvm import query
from saltvirt.ops import inspect, reservations
from saltvirt.placement import brief
from saltvirt.xml import read


def facts(conn: Any, settings: HostSettings, host: str, wanted: brief.About) -> brief.Brief:
    """
    Return the answer of a host to ``virt.placement_facts``.

    host
        Its id, by which it is asked for all, or for names alone.
    """
    if wanted.is_for(host):
        return brief.of(inspect.host_info(conn, settings), wanted)
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
