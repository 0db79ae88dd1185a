"""Find a VM where it was last seen, before all hypervisors are asked."""

from collections.abc import Mapping

from saltvirt import arguments, wire
from saltvirt.errors import NameTaken, VirtError
from saltvirt.fleet import hints, inventory, minions, sightings, whereabouts
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.whereabouts import Whereabouts
from saltvirt.placement.answers import Presence

# How long the one host has for its answer; one that is slower is asked again with all others.
_HINTED_S = 1


def to_read(cloud: Cloud, name: str) -> str:
    """
    Return the host that has a VM, for a command that changes nothing; see ``inventory.locate``.

    The host that had it when it was last asked is asked first, and alone if it runs there still:
    what that says of it is true, whoever else has a VM of that name. All are asked if it does not,
    as it may be what a move by hand has left there; if that host is silent; or if more had it.
    """
    arguments.text("name", name)
    every = inventory.every(cloud)
    hinted = [host for host in hints.where(cloud.opts, name) if host in every]
    if len(hinted) == 1 and _runs(cloud, hinted[0], name):
        return hinted[0]
    return inventory.locate(cloud, name)


def _runs(cloud: Cloud, host: str, name: str) -> bool:
    """Return whether a host says at once that it has all of a VM, and that it runs."""
    fun = "virt.presence"
    try:
        reply = minions.ask(cloud, [host], fun, [name], timeout_s=_HINTED_S)[host]
        said = wire.read(host, fun, Presence, reply.value) if reply.ok else None
    except VirtError:
        return False
    # One that is silent here is no silent host yet: it is waited for when all are asked.
    if said is None or said.state != "running":
        return False
    return sightings.of_presence({host: said})[host].is_complete


def confirm(cloud: Cloud, name: str, host: str) -> None:
    """
    Raise NameTaken if the VM that is known to be on a host may be a stale definition.

    Only hosts that had the VM when they were last asked are asked, so that this costs nothing where
    no other host had it. See :func:`saltvirt.fleet.whereabouts.confirm`.
    """
    known = _by_hints(cloud, name, host)
    if known is not None:
        whereabouts.confirm(known, host)


def doubtful(cloud: Cloud, hosts: Mapping[str, str]) -> dict[str, str]:
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
    known = _by_hints(cloud, name, host)
    if known is not None:
        whereabouts.refuse_elsewhere(known, host)


def _by_hints(cloud: Cloud, name: str, host: str) -> Whereabouts | None:
    """Return what a host, and others that had a VM of its name, say of it; None without others."""
    others = {other for other in hints.where(cloud.opts, name) if other != host}
    if not others:
        return None
    asked = {host, *others}.intersection(inventory.every(cloud))
    found = inventory.survey(cloud, asked, "virt.presence", [name], concerned=asked)
    return inventory.known_of(cloud, found, name)
