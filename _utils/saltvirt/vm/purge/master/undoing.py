"""Bring the last purged VM of a name back, its key last; the next undo goes on."""

import shlex
from dataclasses import replace
from typing import Any

from saltvirt.cluster import minionkeys, orders, undorecords
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import lastseen, whereabouts
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.whereabouts import Purpose, Whereabouts
from saltvirt.cluster.rpc import minions
from saltvirt.cluster.rpc.hostcommands import HostCommandFailed, HostUnresponsive, act
from saltvirt.core import arguments, wire
from saltvirt.core.errors import NameTaken, VirtError
from saltvirt.core.journal.recordfacts import OrderFacts, UndoFacts
from saltvirt.core.journal.records import LockedRecord
from saltvirt.migration.master import recovery
from saltvirt.vm.purge.purgeanswers import Undone
from saltvirt.vm.recovery.master import interrupted

_UNDO = "virt.undo"


class NothingToUndo(VirtError):
    """The master has purged no VM of that name that could be brought back."""


def undo(cloud: Cloud, name: str, *, is_dry: bool = False, force: object = False) -> dict[str, Any]:
    """
    Bring the last purged VM of a name back to its host; return what is back.

    is_dry
        Change nothing. Defaults to False.
    force
        Pass over unresponsive hosts that may have a VM of that name. Defaults to False.

    The name must be free in the whole cloud, as for a new VM. The host brings back files and
    definition, or nothing; then the key of the VM's minion is accepted again.
    """
    arguments.vm_name(name)
    is_forced = arguments.boolean("force", force)
    minionkeys.refuse_reserved(cloud.opts, name)
    if is_dry:
        facts = _read_facts(cloud, name)
        vm = locate(cloud, name, Purpose.REPORT)
        _refuse_taken(cloud, vm, facts, is_forced=is_forced)
        reply = act(cloud, facts.host, _UNDO, name, kwarg={"uuid": facts.uuid, "test": True})
        return _answer(name, facts, wire.read(facts.host, _UNDO, Undone, reply))
    with orders.opened(cloud.opts, name) as order:
        recovery.settle_order(cloud, order)
        return _undo_locked(cloud, order, name, is_forced=is_forced)


def _undo_locked(
    cloud: Cloud, order: LockedRecord, name: str, *, is_forced: bool
) -> dict[str, Any]:
    """Do as :func:`undo` under the VM's order."""
    pending_job = interrupted.give_up(cloud, order)
    is_begun = order.record is not None and order.record.phase == undorecords.RESTORING
    vm = locate(cloud, name, Purpose.REPORT, order_hosts=interrupted.order_hosts(order))
    if not is_begun:
        interrupted.settle(
            cloud.opts, order, vm.presence_by_host, {**pending_job.reasons, **vm.may_have}
        )
    elif pending_job.reasons:
        raise NameTaken(
            f"an interrupted virt.undo of VM {name!r} is not over: "
            f"{whereabouts.with_reasons(pending_job.reasons)}; try again then"
        )
    facts = _read_facts(cloud, name)
    _refuse_taken(cloud, vm, facts, is_forced=is_forced)
    order_id = minions.new_id()
    order_facts = OrderFacts(
        host=facts.host,
        order_id=order_id,
        public_key=facts.public_key,
        given_uuid=facts.uuid,
    )
    orders.begin(order, undorecords.RESTORING, order_facts)
    try:
        reply = act(cloud, facts.host, _UNDO, name, kwarg={"uuid": facts.uuid}, order_id=order_id)
    except (KeyboardInterrupt, SystemExit):
        raise HostCommandFailed(
            f"interrupted while {facts.host} brought VM {name!r} back; run salt-run virt.undo "
            f"{name} again, which goes on"
        ) from None
    except HostUnresponsive as error:
        raise HostUnresponsive(
            f"{error}; run salt-run virt.undo {name} again, which goes on"
        ) from error
    except HostCommandFailed:
        # The host has refused, or the next undo goes on with what it has begun.
        order.end()
        raise
    undone = wire.read(facts.host, _UNDO, Undone, reply)
    lastseen.record_move(cloud.opts, name, facts.host)
    undorecords.complete(cloud.opts, order, facts.public_key)
    return _answer(name, facts, undone)


def _read_facts(cloud: Cloud, name: str) -> UndoFacts:
    facts = undorecords.read(cloud.opts, name)
    if facts is None:
        raise NothingToUndo(
            f"this master has no purged VM called {name!r} on record; salt-run virt.trash shows "
            "what hosts have kept; a VM that was purged on its host: salt HOST virt.undo "
            f"{shlex.quote(name)}"
        )
    return facts


def _refuse_taken(cloud: Cloud, vm: Whereabouts, facts: UndoFacts, *, is_forced: bool) -> None:
    """Raise NameTaken if the name is taken, or may be, by another VM or another minion."""
    if is_forced:
        vm = replace(vm, suspects={}, ordered={})
    seen = vm.presence_by_host.get(facts.host)
    # An interrupted undo leaves the VM itself, on its host.
    is_half_done = vm.hosts == [facts.host] and seen is not None and seen.uuid == facts.uuid
    if not is_half_done:
        whereabouts.decide(vm, Purpose.CREATE)
    elif vm.may_have:
        raise NameTaken(
            f"VM {vm.name!r} may be on {whereabouts.with_reasons(vm.may_have)}, too; if you know "
            "that it is not, give force=True"
        )
    accepted_key = minionkeys.read_accepted(cloud.opts, vm.name)
    if facts.public_key is not None and accepted_key not in (None, facts.public_key.strip()):
        minionkeys.refuse_taken(cloud.opts, vm.name)


def _answer(name: str, facts: UndoFacts, undone: Undone) -> dict[str, Any]:
    """Return what is back, and whether the master accepts the key of the VM's minion."""
    return {
        "name": name,
        "host": facts.host,
        **wire.plain(undone),
        "has_key": facts.public_key is not None,
    }
