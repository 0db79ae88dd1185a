"""Settle what an interrupted command left of a VM, by the hosts' current answers."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt.cluster import minionkeys, orders, renameorders, undorecords
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory.presence import VmPresence
from saltvirt.cluster.rpc import minions
from saltvirt.core.errors import NameTaken
from saltvirt.core.journal import records
from saltvirt.core.journal.records import LockedRecord, Record

# The phases in which a host may have the order's job.
_ASKED = (orders.ORDERED, orders.REMOVING, undorecords.RESTORING)
_FUNCTIONS = {orders.REMOVING: "purge", undorecords.RESTORING: "undo"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingJob:
    """
    The job of an order that its host may still begin, or is working on.

    reasons
        ``{host: reason}``; empty without such a job.
    is_running
        Whether the host reports the job as running.
    """

    reasons: Mapping[str, str] = field(default_factory=dict)
    is_running: bool = False


def give_up(cloud: Cloud, order: LockedRecord) -> PendingJob:
    """
    Have the host of an order refuse the job, if it has not begun.

    The job may be queued there. Survey the hosts after this, not before: only then do their
    answers stay true.
    """
    record = order.record
    facts = orders.read_facts(record)
    host, order_id = facts.host, facts.order_id
    if record is None or record.phase not in _ASKED:
        return PendingJob()
    if not (host and order_id):
        return PendingJob()
    answer = minions.refuse(cloud, host, order_id)
    if answer is None:
        cloud.silence.record([host], [host])
        return PendingJob(reasons={host: "it cannot be told that the order was given up"})
    if answer == minions.RUNNING:
        return PendingJob(reasons={host: "it is still working on it"}, is_running=True)
    return PendingJob()


def settle(
    opts: Mapping[str, Any],
    order: LockedRecord,
    sightings_by_host: Mapping[str, VmPresence],
    suspects: Mapping[str, str],
) -> str:
    """
    End the order of an interrupted deployment, purge or undo, if its outcome is known.

    sightings_by_host
        The answers about the VM of all hosts that answer.
    suspects
        ``{host: reason}`` of hosts that may have the VM and cannot be asked, or may still begin.

    Returns what was done, empty for nothing. The order stays while a host has a part of the VM.
    Raises NameTaken if the outcome is unknown.
    """
    record = order.record
    if record is None:
        return ""
    # Before a host was asked, a VM of that name is not this order's.
    was_asked = record.phase not in (orders.PLACING, orders.KEYED)
    sightings_by_host = _without_other_vms(record, sightings_by_host)
    if was_asked:
        _refuse_late(record, sightings_by_host, suspects)
    if was_asked and any(sighting.is_complete for sighting in sightings_by_host.values()):
        _end_complete(opts, order)
        return "the interrupted command had finished: the VM is complete and keeps its key"
    # The host itself removes what a build left that died before the VM was defined.
    if was_asked and any(
        sighting.building or sighting.is_its_own for sighting in sightings_by_host.values()
    ):
        return ""
    if was_asked and suspects:
        raise NameTaken(_unknown_message(record, suspects))
    outcome_text = _discard_key(opts, order)
    order.end()
    return outcome_text


def _end_complete(opts: Mapping[str, Any], order: LockedRecord) -> None:
    """End the order of a VM that is complete; accept its key if it was brought back."""
    if order.now.phase == undorecords.RESTORING:
        undorecords.complete(opts, order, orders.read_facts(order.now).public_key)
    else:
        order.end()


def _without_other_vms(
    record: Record, sightings_by_host: Mapping[str, VmPresence]
) -> dict[str, VmPresence]:
    """Return the sightings without other VMs that have the order's name."""
    uuid = orders.read_facts(record).given_uuid

    def without(sighting: VmPresence) -> VmPresence:
        is_another = None not in (uuid, sighting.uuid) and sighting.uuid != uuid
        return replace(sighting, state=None, moved_to=None, uuid=None) if is_another else sighting

    return {host: without(sighting) for host, sighting in sightings_by_host.items()}


def _refuse_late(
    record: Record, sightings_by_host: Mapping[str, VmPresence], suspects: Mapping[str, str]
) -> None:
    """Raise NameTaken if a host that answers may still begin the order's job."""
    late_suspects = {
        host: reason
        for host, reason in suspects.items()
        if host in sightings_by_host and not _shows_outcome(record, sightings_by_host[host])
    }
    if late_suspects:
        raise NameTaken(_unknown_message(record, late_suspects))


def _shows_outcome(record: Record, sighting: VmPresence) -> bool:
    """Return whether a host's answer already shows the outcome of an order in progress."""
    return sighting.building or (sighting.is_complete and record.phase != orders.REMOVING)


def refuse_recorded(opts: Mapping[str, Any], name: str) -> None:
    """
    Raise NameTaken if this master has a command for a VM on record, at work or interrupted.

    For dry runs, which take no lock: they keep no other command from the VM.
    """
    record = records.read_record(orders.folder(opts), orders.PURPOSE, name)
    refuse_other(record)
    if record is not None:
        raise NameTaken(renameorders.describe(record))


def refuse_other(record: Record | None) -> None:
    """Raise NameTaken if a record of a name is of another command than a rename."""
    if record is None or record.phase in renameorders.PHASES:
        return
    command = "settle" if record.phase == orders.MOVING else "doctor"
    argument = f" {shlex.quote(record.name)}" if command == "settle" else " fix=True"
    raise NameTaken(
        f"another command has a record of VM {record.name!r} ({record.phase}): wait for it, or if "
        f"it was interrupted, end it first: salt-run virt.{command}{argument}"
    )


def order_hosts(order: LockedRecord) -> list[str]:
    """Return the hosts that an order names, which may have its VM."""
    host = orders.read_facts(order.record).host
    return [host] if host else []


def _discard_key(opts: Mapping[str, Any], order: LockedRecord) -> str:
    """Remove the key that an order recorded, as no host has the VM; return what was done."""
    record = order.now
    public = orders.read_facts(record).public_key
    if record.phase == undorecords.RESTORING:
        return "its interrupted virt.undo had brought nothing back"
    if record.phase == orders.REMOVING:
        undorecords.note_order(opts, record)
        is_deleted = minionkeys.delete(opts, record.name, public)
        return "its minion key is deleted now" if is_deleted else "its minion key is gone too"
    if public is not None:
        minionkeys.discard(opts, record.name, public)
    return "what an interrupted virt.init had begun was taken back"


def _unknown_message(record: Record, suspects: Mapping[str, str]) -> str:
    function = _FUNCTIONS.get(record.phase, "init")
    ending = "finished or taken back" if function == "init" else "finished"
    rerun_text = "" if function == "purge" else f"run virt.{function} again, or "
    suspects_text = ", ".join(f"{host} ({reason})" for host, reason in sorted(suspects.items()))
    return (
        f"an interrupted virt.{function} of VM {record.name!r} cannot be {ending} yet: it may be "
        f"on {suspects_text}; when it can be asked, {rerun_text}salt-run virt.purge {record.name}; "
        f"if it never comes back: salt-run virt.host_lost {shlex.quote(sorted(suspects)[0])}"
    )
