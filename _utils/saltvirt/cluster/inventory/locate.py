"""Find a VM where it was last seen, before asking all hosts."""

from collections.abc import Mapping

from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastseen, whereabouts
from saltvirt.cluster.inventory import presence as sightings
from saltvirt.cluster.inventory.whereabouts import Whereabouts
from saltvirt.cluster.rpc import minions
from saltvirt.core import arguments, wire
from saltvirt.core.errors import NameTaken, VirtError
from saltvirt.placement.answers import Presence

# Seconds for the host that last had the VM; a slower host is asked again with all others.
_HINTED_S = 1


def locate_for_read(cloud: Cloud, name: str) -> str:
    """
    Return the host that has a VM, for a command that changes nothing; see ``inventory.locate``.

    If exactly one host last had the VM, and still runs it, no other host is asked: the answer
    holds even if another host has a VM of that name. Otherwise all hosts are asked: a VM that
    does not run may be what a move by hand left behind.
    """
    arguments.text("name", name)
    all_hosts = inventory.all_hosts(cloud)
    hinted_hosts = [host for host in lastseen.find_hosts(cloud.opts, name) if host in all_hosts]
    if len(hinted_hosts) == 1 and _is_running_on(cloud, hinted_hosts[0], name):
        return hinted_hosts[0]
    return inventory.locate(cloud, name)


def _is_running_on(cloud: Cloud, host: str, name: str) -> bool:
    """Return whether a host answers at once that a VM is complete and runs there."""
    fun = "virt.presence"
    try:
        reply = minions.ask(cloud, [host], fun, [name], timeout_s=_HINTED_S)[host]
        presence = wire.read(host, fun, Presence, reply.value) if reply.ok else None
    except VirtError:
        return False
    # A host that is slow here does not count as unresponsive: locate asks it again.
    if presence is None or presence.state != "running":
        return False
    return sightings.from_presence({host: presence})[host].is_complete


def confirm(cloud: Cloud, name: str, host: str) -> None:
    """
    Raise NameTaken if the VM of a host may be a stale definition.

    Asks this host and others that last had the VM; without others it asks none. See
    :func:`saltvirt.cluster.inventory.whereabouts.confirm`.
    """
    location = _ask_hinted_hosts(cloud, name, host)
    if location is not None:
        whereabouts.confirm(location, host)


def find_doubtful(cloud: Cloud, hosts: Mapping[str, str]) -> dict[str, str]:
    """Return ``{name: reason}`` of the VMs of ``{name: host}`` that :func:`confirm` refuses."""
    out = {}
    for name, host in hosts.items():
        try:
            confirm(cloud, name, host)
        except NameTaken as error:
            out[name] = str(error)
    return out


def refuse_elsewhere(cloud: Cloud, name: str, host: str) -> None:
    """Raise NameTaken if another host than this one has a VM, or had it and cannot be asked."""
    location = _ask_hinted_hosts(cloud, name, host)
    if location is not None:
        whereabouts.refuse_elsewhere(location, host)


def _ask_hinted_hosts(cloud: Cloud, name: str, host: str) -> Whereabouts | None:
    """Return the answers of a host and of others that last had a VM; None without others."""
    other_hosts = {
        other_host for other_host in lastseen.find_hosts(cloud.opts, name) if other_host != host
    }
    if not other_hosts:
        return None
    concerned_hosts = {host, *other_hosts}.intersection(inventory.all_hosts(cloud))
    survey = inventory.survey(
        cloud, concerned_hosts, "virt.presence", [name], concerned_hosts=concerned_hosts
    )
    return inventory.whereabouts_from_survey(cloud, survey, name)
