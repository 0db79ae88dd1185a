"""Remove a VM wherever it is, its key last; the next purge finishes an interrupted one."""

import shlex
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from saltvirt.cluster import minionkeys, orders, undorecords
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastseen, presence, whereabouts
from saltvirt.cluster.inventory.locate import ask_presence, locate
from saltvirt.cluster.inventory.whereabouts import Purpose, Whereabouts
from saltvirt.cluster.rpc import minions
from saltvirt.cluster.rpc.hostcommands import HostCommandFailed, HostUnresponsive, act
from saltvirt.core import arguments, wire
from saltvirt.core.errors import BadArgument, NoSuchVm
from saltvirt.core.journal.recordfacts import OrderFacts
from saltvirt.core.journal.records import LockedRecord, Record
from saltvirt.migration.master import recovery
from saltvirt.seeding.master import authorization
from saltvirt.storage.master import fileusers
from saltvirt.vm.purge.purgeanswers import Purged
from saltvirt.vm.recovery.master import interrupted

_SHARED = "virt.shared_files"


# The key of an answer with what hosts report of purges, by VM.
DETAILS = "details"


def purge(cloud: Cloud, name: str, delete_key: bool, force: object = False) -> dict[str, Any]:
    """
    Remove a VM, its disks, its seed and its key; return ``{host: {name: "purged"}}``.

    What its host reports of the purge is beside that, in ``details``.

    force
        Remove the VM even if an unresponsive host may need a file that hosts share: the file goes
        into the trash. Defaults to False.

    The key is recorded before anything is removed: if this purge is interrupted, the next one for
    that name deletes this key, and no other.
    """
    arguments.vm_name(name)
    arguments.boolean("delete_key", delete_key)
    is_forced = arguments.boolean("force", force)
    _refuse_hypervisor(cloud, name)
    with orders.opened(cloud.opts, name) as order:
        return purge_locked(cloud, order, name, delete_key=delete_key, force=is_forced)


def dry_run(cloud: Cloud, name: str, delete_key: bool, force: object = False) -> dict[str, Any]:
    """
    Return ``{host: {name: what would be done}}``, and what its host reports in ``details``.

    The arguments and the refusals are those of :func:`purge`; nothing is changed. Raises NameTaken
    if this master has a command for that VM on record: the purge would settle it first.
    """
    arguments.vm_name(name)
    deletes_key = arguments.boolean("delete_key", delete_key)
    is_forced = arguments.boolean("force", force)
    _refuse_hypervisor(cloud, name)
    interrupted.refuse_recorded(cloud.opts, name)
    vm = locate(cloud, name, Purpose.REPORT)
    _refuse_kept(name, vm.presence_by_host, vm.may_have)
    host = _find_host(vm, None)
    seen = vm.presence_by_host[host]
    uuid = None if seen.moved_to else seen.uuid
    paths = _shared_files(cloud, host, name)
    replies = fileusers.ask(cloud, host, paths, uuid=uuid, force=is_forced) if paths else {}
    options = {"uuid": uuid, "replies": replies, "test": True}
    kwarg = {option: value for option, value in options.items() if value}
    reply = act(cloud, host, "virt.purge", name, kwarg=kwarg)
    fileusers.refuse_unasked(host, "virt.purge", reply)
    plan = wire.read(host, "virt.purge", Purged, reply)
    has_key = deletes_key and minionkeys.read_accepted(cloud.opts, name) is not None
    outcome = f"would be purged{', with its minion key' if has_key else ''}"
    if seen.moved_to is None and seen.state in whereabouts.RUNNING_STATES:
        outcome += f"; it is {seen.state}: its plug would be pulled"
    return {host: {name: outcome}, DETAILS: {name: _details(name, plan)}}


def purge_locked(
    cloud: Cloud,
    order: LockedRecord,
    name: str,
    *,
    delete_key: bool = True,
    only: Collection[str] | None = None,
    uuid: str | None = None,
    force: bool = False,
    only_made: bool = False,
) -> dict[str, Any]:
    """
    Do as :func:`purge` under the VM's order, which the caller holds.

    only
        The hosts where the VM may be the right one. Defaults to all.
    uuid
        UUID of the right VM. Defaults to any VM of that name.
    only_made
        Remove what the VM's build made, and leave what it used as it was, if its host has recorded
        that. Defaults to False.

    Raises HostCommandFailed for another VM of that name, which stays.
    """
    recovery.settle_order(cloud, order)
    busy_reasons = interrupted.give_up(cloud, order).reasons
    vm = locate(cloud, name, Purpose.REPORT, order_hosts=interrupted.order_hosts(order))
    presence_by_host = vm.presence_by_host
    _refuse_another(name, presence_by_host, only, uuid)
    unheard = {**busy_reasons, **vm.may_have}
    begun_purge = _begun_purge(order, delete_key)
    # A resumed purge removes no more than it began with.
    only_made = only_made or orders.read_facts(begun_purge).only_made
    settle_text = interrupted.settle(cloud.opts, order, presence_by_host, unheard)
    _refuse_kept(name, presence_by_host, unheard)
    try:
        host = _find_host(vm, uuid)
    except NoSuchVm as error:
        if begun_purge:
            return {orders.read_facts(begun_purge).host or "": {name: f"purged; {settle_text}"}}
        raise NoSuchVm(name, error.where, error.silent, settle_text) from None
    moved_to = presence_by_host[host].moved_to
    # The interrupted purge of a VM that has moved deleted its key: one there now may be another's.
    delete_key = delete_key and (moved_to is None or begun_purge is None)
    vm_uuid = uuid or (None if moved_to else presence_by_host[host].uuid)
    only_made = only_made and presence_by_host[host].notes_made
    purged = _remove(
        cloud,
        order,
        name,
        host,
        delete_key,
        vm_uuid,
        only_made=only_made,
        force=force,
        undo_uuid=presence_by_host[host].uuid if presence_by_host[host].reports else None,
    )
    details = {} if purged is None else {DETAILS: {name: _details(name, purged)}}
    return {host: {name: "purged"}, **details}


def _details(name: str, purged: Purged) -> dict[str, Any]:
    """Return what a host reports of a purge, with the command that undoes it."""
    undo = f"salt-run virt.undo {shlex.quote(name)}" if purged.can_undo else None
    return {**wire.plain(purged), "undo": undo}


def _begun_purge(order: LockedRecord, delete_key: bool) -> Record | None:
    """Return the interrupted purge of an order; drop the recorded key if it is to stay."""
    record = order.record
    if record is None or record.phase != orders.REMOVING:
        return None
    if not delete_key:
        orders.enter(order, orders.REMOVING, replace(orders.read_facts(record), public_key=None))
    return record


def take_back(cloud: Cloud, order: LockedRecord, name: str, host: str, uuid: str) -> None:
    """
    Remove the VM that a host has just built for the caller's order, and its key.

    What the build used stays on its host as it was.
    """
    survey = inventory.survey(cloud, [host], "virt.presence", [name])
    for reason in survey.reasons().values():
        raise HostUnresponsive(f"{host} cannot be asked what it has of VM {name!r}: {reason}")
    _remove(cloud, order, name, host, True, uuid, only_made=bool(survey.answers[host].notes_made))


def _refuse_another(
    name: str,
    presence_by_host: Mapping[str, presence.VmPresence],
    only: Collection[str] | None,
    uuid: str | None,
) -> None:
    """Raise HostCommandFailed if a host has a VM of that name that cannot be the right one."""
    other_hosts = [
        host
        for host in sorted(presence.find_hosts(presence_by_host))
        if (only is not None and host not in only)
        or (uuid and presence_by_host[host].uuid not in (None, uuid))
    ]
    if other_hosts:
        raise HostCommandFailed(
            f"VM {name!r} on {', '.join(other_hosts)} is not of this command, so nothing is removed"
        )


def _refuse_hypervisor(cloud: Cloud, name: str) -> None:
    """Raise BadArgument if the name is reserved for hypervisors: their keys are no VM's."""
    if cloud.members.would_have(name):
        raise BadArgument(
            "name",
            f"{name!r} is kept for hypervisors: {cloud.members.reserved(name)}; a VM that is "
            f"called so all the same is removed on its host: salt HOST virt.purge {name}",
        )


def _find_host(vm: Whereabouts, uuid: str | None) -> str:
    """Return the host of a VM; if a host has its UUID, hosts out of reach do not count."""
    if uuid is not None and any(seen.uuid == uuid for seen in vm.presence_by_host.values()):
        # What another host had under that name is another VM.
        vm = replace(vm, suspects={})
    return whereabouts.decide(vm, Purpose.REMOVE)


def _refuse_kept(
    name: str, presence_by_host: Mapping[str, presence.VmPresence], unheard: Mapping[str, str]
) -> None:
    """Raise HostCommandFailed if only a definition was kept, and a silent host may have the VM."""
    hosts = presence.find_hosts(presence_by_host)
    moved_to = presence_by_host[hosts[0]].moved_to if len(hosts) == 1 else None
    if unheard and moved_to is not None:
        host = hosts[0]
        raise HostCommandFailed(
            f"VM {name!r} has moved to {moved_to}, and {host} only kept its definition; "
            f"{', '.join(sorted(unheard))} may have it and cannot be asked, so nothing is "
            f"removed, not even its minion key; salt {shlex.quote(host)} virt.undefine {name} "
            "removes the definition alone"
        )


def _remove(
    cloud: Cloud,
    order: LockedRecord,
    name: str,
    host: str,
    delete_key: bool,
    uuid: str | None,
    *,
    force: bool = False,
    only_made: bool = False,
    undo_uuid: str | None = None,
) -> Purged | None:
    """
    Have a host remove a VM, and delete its key; return what the host reports.

    undo_uuid
        The VM's UUID, if the host can report what it removes. Defaults to a host that cannot.
    """
    # Before anything is recorded: an unresponsive host prevents the purge.
    paths = _shared_files(cloud, host, name)
    replies = fileusers.ask(cloud, host, paths, uuid=uuid, force=force) if paths else {}
    public_key = minionkeys.read_accepted(cloud.opts, name) if delete_key else None
    order_id = minions.new_id()
    facts = OrderFacts(
        host=host,
        order_id=order_id,
        public_key=public_key,
        only_made=only_made,
        undo_uuid=undo_uuid,
    )
    orders.begin(order, orders.REMOVING, facts)
    options = {"uuid": uuid, "only_made": only_made, "replies": replies, "report": bool(undo_uuid)}
    # Hosts of older releases refuse options that they do not know.
    kwarg = {option: value for option, value in options.items() if value}
    try:
        reply = act(cloud, host, "virt.purge", name, kwarg=kwarg, order_id=order_id)
        fileusers.refuse_unasked(host, "virt.purge", reply)
        purged = wire.read(host, "virt.purge", Purged, reply) if undo_uuid else None
    except (KeyboardInterrupt, SystemExit):
        raise HostCommandFailed(
            f"interrupted while {host} removed VM {name!r}; run salt-run virt.purge {name} again, "
            "which goes on"
        ) from None
    except HostUnresponsive as error:
        raise HostUnresponsive(
            f"{error}; run salt-run virt.purge {name} again, which goes on"
        ) from error
    except HostCommandFailed:
        if _still_has(cloud, host, name):
            order.end()
        raise
    if purged is not None and purged.can_undo:
        undorecords.note_order(cloud.opts, order.now)
    minionkeys.delete(cloud.opts, name, public_key)
    authorization.forget(cloud.opts, name, host)
    lastseen.record_removal(cloud.opts, name)
    order.end()
    return purged


def _shared_files(cloud: Cloud, host: str, name: str) -> list[str]:
    """Return the files of a VM that other hosts must be asked about."""
    survey = inventory.survey(cloud, [host], _SHARED, [name])
    for reason in survey.reasons().values():
        raise HostUnresponsive(f"{host} has VM {name!r}, and {reason}, so nothing is removed")
    paths: list[str] = survey.answers[host]
    return paths


def _still_has(cloud: Cloud, host: str, name: str) -> bool:
    """Return whether a host that failed to remove a VM still has its domain."""
    vm_presence = ask_presence(cloud, host, name)
    return vm_presence is not None and vm_presence.state is not None
