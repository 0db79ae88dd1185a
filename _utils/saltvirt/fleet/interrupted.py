"""What an interrupted command has left of a VM, settled by what the hosts say of it now."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from saltvirt.errors import NameTaken
from saltvirt.fleet import keys, minions, orders
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.sightings import Sighting
from saltvirt.records import Held, Record

# Why nothing is known of an order that its host has begun, and is not done with.
AT_IT = "it is still working on it"


def give_up(cloud: Cloud, held: Held) -> dict[str, str]:
    """
    Have the host that an order names never begin what it was asked for, if it has not yet.

    Its job may be queued there. The hosts are asked what they have after this, not before: only
    then does their answer stay true. Returns ``{host: why}`` if that host may still begin it, or is
    working on it.
    """
    left = held.record
    facts = orders.facts(left)
    host, order_id = facts.host, facts.order_id
    if left is None or left.phase not in (orders.ORDERED, orders.REMOVING):
        return {}
    if not (host and order_id):
        return {}
    said = minions.refuse(cloud, host, order_id)
    if said is None:
        cloud.silence.take_in([host], [host])
        return {host: "it cannot be told that the order was given up"}
    return {host: AT_IT} if said == minions.RUNNING else {}


def settle(
    opts: Mapping[str, Any], held: Held, seen: Mapping[str, Sighting], unheard: Mapping[str, str]
) -> str:
    """
    End an order of a deployment or a purge that was interrupted, if what came of it is known.

    seen
        What every host that answers says of the VM.
    unheard
        ``{host: why}`` of those that may have it and cannot be asked, or may still begin.

    Returns what was done, empty if there was nothing to do. An order stays while a host has a part
    of the VM. Raises NameTaken if it cannot be known.
    """
    left = held.record
    if left is None:
        return ""
    # Before a host was asked there is no VM of this order, whoever has one of its name.
    was_asked = left.phase not in (orders.PLACING, orders.KEYED)
    seen = _of_order(left, seen)
    if was_asked:
        _refuse_late(left, seen, unheard)
    if was_asked and any(one.is_complete for one in seen.values()):
        held.end()
        return "the interrupted command had finished: the VM is complete and keeps its key"
    # What a builder left that died before it defined the VM, its host removes; it needs no key.
    if was_asked and any(one.building or one.is_its_own for one in seen.values()):
        return ""
    if was_asked and unheard:
        raise NameTaken(_may_be(left, unheard))
    said = _without_vm(opts, held)
    held.end()
    return said


def _of_order(left: Record, seen: Mapping[str, Sighting]) -> dict[str, Sighting]:
    """Return what hosts say, without other VMs of the name that an order has."""
    uuid = orders.facts(left).given_uuid

    def without(one: Sighting) -> Sighting:
        is_another = None not in (uuid, one.uuid) and one.uuid != uuid
        return replace(one, state=None, moved_to=None, uuid=None) if is_another else one

    return {host: without(one) for host, one in seen.items()}


def _refuse_late(left: Record, seen: Mapping[str, Sighting], unheard: Mapping[str, str]) -> None:
    """Raise NameTaken if a host that answers may still begin what an order has asked it for."""
    late = {one: why for one, why in unheard.items() if one in seen and not _shows(left, seen[one])}
    if late:
        raise NameTaken(_may_be(left, late))


def _shows(left: Record, one: Sighting) -> bool:
    """Return whether a host's own word says already what comes of an order that it is at."""
    return one.building or (one.is_complete and left.phase == orders.ORDERED)


def hosts(held: Held) -> list[str]:
    """Return the hosts that an order names, which may have its VM."""
    host = orders.facts(held.record).host
    return [host] if host else []


def _without_vm(opts: Mapping[str, Any], held: Held) -> str:
    """Take away the key that an order noted, as no host has the VM; return what was done."""
    left = held.now
    public = orders.facts(left).public_key
    if left.phase == orders.REMOVING:
        has_gone = keys.delete(opts, left.name, public)
        return "its minion key is deleted now" if has_gone else "its minion key is gone too"
    if public is not None:
        keys.discard(opts, left.name, public)
    return "what an interrupted virt.init had begun was taken back"


def _may_be(left: Record, unheard: Mapping[str, str]) -> str:
    is_purge = left.phase == orders.REMOVING
    begun, end = ("purge", "finished") if is_purge else ("init", "finished or taken back")
    again = "" if is_purge else "run virt.init again, or "
    listed = ", ".join(f"{host} ({why})" for host, why in sorted(unheard.items()))
    return (
        f"an interrupted virt.{begun} of VM {left.name!r} cannot be {end} yet: it may be on "
        f"{listed}; when it can be asked, {again}salt-run virt.purge {left.name}; if it never "
        "comes back, see docs/maintenance.md"
    )
