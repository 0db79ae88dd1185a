"""Find a VM that is only looked at: where it was last, before all hypervisors are asked."""

from saltvirt import arguments, wire
from saltvirt.errors import VirtError
from saltvirt.fleet import hints, inventory, minions, sightings
from saltvirt.fleet.cloud import Cloud
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
