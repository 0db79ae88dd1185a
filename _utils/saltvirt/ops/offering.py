"""Say what placement must know of this host, in a few hundred bytes; see ``placement.brief``."""

from typing import Any

from saltvirt.config import HostSettings
from saltvirt.kvm import query
from saltvirt.ops import inspect, reservations
from saltvirt.placement import brief
from saltvirt.xml import read


def facts(conn: Any, settings: HostSettings, host: str, request: brief.Query) -> brief.Brief:
    """
    Return the answer of a host to ``virt.placement_facts``.

    host
        Its id, by which it is asked for all, or for names alone.
    """
    if request.is_for(host):
        return brief.build_brief(inspect.host_info(conn, settings), request)
    # First: a record that ends meanwhile is a VM that is listed then.
    building_names = sorted(reservations.read_coming_vms(settings))
    own_names, hosts_by_kept_vm = [], {}
    for definition in query.definitions(conn):
        moved_to = read.describe_notes(definition.root)["moved_to"]
        if moved_to is None:
            own_names.append(definition.name)
        else:
            hosts_by_kept_vm[definition.name] = moved_to
    return brief.Brief(
        names=brief.names(
            request,
            own_names,
            kept_definitions=hosts_by_kept_vm,
            building=building_names,
            unfinished=reservations.find_unfinished(settings),
            unreadable=inspect.unreadable(conn, settings),
        )
    )
