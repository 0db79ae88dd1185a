"""Short facts about this host for placement, a few hundred bytes; see ``placement.brief``."""

from typing import Any

from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import query
from saltvirt.placement import brief
from saltvirt.vm.show.host import inspect
from saltvirt.xml.edit import readdomain


def facts(conn: Any, settings: HostSettings, host: str, request: brief.Query) -> brief.Brief:
    """
    Return this host's answer to ``virt.placement_facts``.

    host
        This host's id, by which the request selects the hosts that answer more than names.
    """
    if request.is_for(host):
        return brief.build_brief(inspect.host_info(conn, settings), request)
    # Read records before domains: a VM is listed as a domain if its record ends in between.
    building_names = sorted(reservations.read_coming_vms(settings))
    own_names, hosts_by_kept_vm = [], {}
    for definition in query.definitions(conn):
        moved_to = readdomain.describe_notes(definition.root)["moved_to"]
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
