"""
Rename a VM: the record under both names, the guest's key, and the order to its host.

The same command again completes an interrupted rename, and the command with the names exchanged
undoes it: see :mod:`saltvirt.core.protocol.renameprotocol`.
"""

import shlex
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from saltvirt.cluster import minionkeys, orders, renameorders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastseen, whereabouts
from saltvirt.cluster.inventory.lastseen import ReportedNames
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.presence import VmPresence
from saltvirt.cluster.inventory.whereabouts import Purpose, Whereabouts
from saltvirt.cluster.rpc import hostcommands, minions
from saltvirt.cluster.rpc.hostcommands import HostCommandFailed, HostUnresponsive
from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument, NameTaken, NoSuchVm
from saltvirt.core.journal.recordfacts import RenameOrderFacts
from saltvirt.core.journal.records import LockedRecord
from saltvirt.core.protocol import effects, renameprotocol
from saltvirt.core.protocol.renameprotocol import Left
from saltvirt.seeding.master import authorization
from saltvirt.vm.recovery.master import interrupted

FUN, _PROGRESS = "virt.rename", "salt/virt/rename"
# The hosts' errors after which nothing was changed, by their classes.
_REFUSALS = ("RenameRefused", "FunctionMissing", "OptionsMissing")
_PLACED = VmPresence(state="shutdown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """
    A call of ``virt.rename``.

    seed
        Whether the guest's minion is renamed; None if it is whenever the master has its key.
    """

    name: str
    new_name: str
    seed: bool | None = None

    @property
    def names(self) -> tuple[str, str]:
        """Both names."""
        return self.name, self.new_name


def parse(name: object, new_name: object, seed: object = None) -> Request:
    """Return the request of a call; raise BadArgument."""
    vm_name, vm_new_name = arguments.vm_name(name), arguments.vm_name(new_name)
    if vm_name == vm_new_name:
        raise BadArgument("new_name", f"{vm_name!r} is the VM's name already")
    return Request(
        name=vm_name,
        new_name=vm_new_name,
        seed=None if seed is None else arguments.boolean("seed", seed),
    )


def rename(cloud: Cloud, request: Request) -> dict[str, dict[str, str]]:
    """
    Rename a VM; return ``{host: {name: outcome}}``.

    Raises, with nothing changed, if the VM or its host refuse; else the error names the commands
    that complete or undo what was begun.
    """
    with ExitStack() as stack:
        # In one order, so that two renames with exchanged names do not wait for each other.
        opened = {
            name: stack.enter_context(orders.opened(cloud.opts, name, renames=True))
            for name in sorted(request.names)
        }
        renaming = _Renaming(cloud, request, opened)
        is_done = effects.run(renameprotocol.run(renaming.left), renaming)
        if not is_done:
            raise renaming.refusal()
        return {renaming.facts.host: {request.name: renaming.outcome()}}


def dry_run(cloud: Cloud, request: Request) -> dict[str, dict[str, str]]:
    """Return ``{host: {name: outcome}}`` of a rename, or raise as it would; change nothing."""
    for name in request.names:
        interrupted.refuse_recorded(cloud.opts, name)
    facts = _check(cloud, request)
    kwarg = {**_host_kwarg(facts), "dry_run": True}
    hostcommands.act(cloud, facts.host, FUN, *request.names, kwarg=kwarg)
    key_text = " with its minion and key" if facts.seeds else ""
    return {facts.host: {request.name: f"would be renamed to {request.new_name}{key_text}"}}


def _check(cloud: Cloud, request: Request) -> RenameOrderFacts:
    """Return the facts of a new rename; raise if the VM cannot be renamed."""
    name, new_name = request.names
    for checked_name in request.names:
        if cloud.members.would_have(checked_name):
            raise BadArgument(
                "name" if checked_name == name else "new_name",
                f"{checked_name!r} is kept for hypervisors: {cloud.members.reserved(checked_name)}",
            )
    vm = locate(cloud, name, Purpose.REMOVE)
    seen = vm.presence_by_host[vm.host]
    if not seen.is_complete or seen.uuid is None:
        raise NameTaken(f"{vm.host} has only a part of VM {name!r}: see salt-run virt.doctor")
    if vm.runs_on(vm.host):
        raise NameTaken(
            f"VM {name!r} is {seen.state} on {vm.host}; only a stopped VM is renamed: salt-run "
            f"virt.shutdown {shlex.quote(name)}"
        )
    minionkeys.refuse_taken(cloud.opts, new_name)
    new_vm = locate(cloud, new_name, Purpose.REPORT)
    # Its text for a host out of reach names an option that a rename does not have.
    if new_vm.may_have:
        raise NameTaken(
            f"VM {new_name!r} may be on {whereabouts.with_reasons(new_vm.may_have)}; try again "
            f"when {' and '.join(new_vm.may_have)} can be asked"
        )
    whereabouts.decide(new_vm, Purpose.CREATE)
    public_key = minionkeys.read_accepted(cloud.opts, name)
    seeds = public_key is not None if request.seed is None else request.seed
    return RenameOrderFacts(
        old=name,
        new=new_name,
        host=vm.host,
        uuid=seen.uuid,
        seeds=seeds,
        public_key=public_key if seeds else None,
    )


def _host_kwarg(facts: RenameOrderFacts) -> dict[str, Any]:
    return {
        "uuid": facts.uuid,
        "seed": facts.seeds,
        "public_key": facts.public_key,
        "report": True,
    }


def _find_uuid(vm: Whereabouts, uuid: str) -> list[str]:
    """Return the hosts that have a VM of this UUID for their own."""
    seen = vm.presence_by_host
    return [host for host in seen if seen[host].uuid == uuid and seen[host].is_its_own]


class _Renaming:
    """One rename: executor of the effects of :func:`renameprotocol.run`."""

    def __init__(self, cloud: Cloud, request: Request, opened: Mapping[str, LockedRecord]) -> None:
        self._cloud, self._request, self._orders = cloud, request, opened
        for order in opened.values():
            interrupted.refuse_other(order.record)
        left = [order.record for order in opened.values() if order.record is not None]
        self._recorded = [renameorders.read(record) for record in left]
        for facts in self._recorded:
            if {facts.old, facts.new} != set(request.names):
                raise NameTaken(renameorders.describe(left[self._recorded.index(facts)]))
        self._error: HostCommandFailed | None = None
        self._was_ordered = any(facts.order_id for facts in self._recorded)
        self.left: Left | None = None
        if left:
            # The half that has got further counts.
            record = max(
                left,
                key=lambda record: (
                    record.phase == renameprotocol.RENAMED,
                    bool(renameorders.read(record).order_id),
                ),
            )
            self.facts = renameorders.read(record)
            self._refuse_other_seed()
            self.left = Left(
                phase=record.phase,
                was_ordered=self._was_ordered,
                moves_key=self.facts.public_key is not None,
                is_reversed=self.facts.old != request.name,
            )

    def _refuse_other_seed(self) -> None:
        """Raise BadArgument if a rename was begun with its guest, and would go on without."""
        if self._request.seed not in (None, self.facts.seeds):
            raise BadArgument(
                "seed",
                f"the interrupted rename was begun with seed={self.facts.seeds}: leave it out",
            )

    def refusal(self) -> Exception:
        """Return the error of a host that has refused, with what is left."""
        error = self._error or HostCommandFailed("the host has refused")
        record = next((order.record for order in self._orders.values() if order.record), None)
        if record is None:
            return error
        return HostCommandFailed(f"{error}; {renameorders.describe(record)}")

    def outcome(self) -> str:
        """Return what was done, and what is left to the operator."""
        facts, request = self.facts, self._request
        text = f"renamed to {request.new_name}"
        if facts.seeds:
            return text
        old_key = minionkeys.read_accepted(self._cloud.opts, request.name)
        if old_key is None:
            return text
        old, new = map(shlex.quote, request.names)
        return (
            f"{text}; its guest's minion is still called {request.name}: in the guest, write "
            f"{request.new_name} to /etc/salt/minion_id and to id in "
            "/etc/salt/minion.d/zz-salt-virt.conf, and restart salt-minion; then salt-key "
            f"-a {new} and salt-key -d {old}"
        )

    # The effects.

    def check(self) -> bool:
        """Check both names; return whether a key moves."""
        self._was_ordered = False
        self.facts = _check(self._cloud, self._request)
        return self.facts.public_key is not None

    def give_up_job(self) -> None:
        """Make sure that no earlier order is at work or begins, and see which host has the VM."""
        facts, cloud = self.facts, self._cloud
        is_known = facts.host in inventory.all_hosts(cloud)
        for order_id in {facts.order_id for facts in self._recorded if is_known}:
            if order_id is None:
                continue
            answer = minions.refuse(cloud, facts.host, order_id)
            if answer is None:
                cloud.silence.record([facts.host], [facts.host])
                raise HostUnresponsive(
                    f"{facts.host} does not answer, and may be renaming VM {facts.old!r}; try "
                    "again when it answers"
                )
            if answer == minions.RUNNING:
                raise NameTaken(f"{facts.host} is still renaming VM {facts.old!r}; wait for it")
        host = self._find_host()
        name, new_name = self._request.names
        self.facts = replace(facts, old=name, new=new_name, host=host)

    def _find_host(self) -> str:
        """Return the host that has the VM under either name; end the record if none has it."""
        facts, cloud = self.facts, self._cloud
        vms = [locate(cloud, name, Purpose.REPORT) for name in self._request.names]
        hosts = {host for vm in vms for host in _find_uuid(vm, facts.uuid)}
        if len(hosts) == 1:
            return hosts.pop()
        reasons = {h: r for vm in vms for h, r in {**vm.unasked, **vm.may_have}.items()}
        # A host that this master does not know any more has nothing of its own.
        if hosts or reasons:
            raise NameTaken(
                f"VM {facts.old!r} (UUID {facts.uuid}) is on "
                f"{' and '.join(sorted(hosts)) or 'no host that answers'}, and may be on "
                f"{whereabouts.with_reasons(reasons) or 'none of the others'}; nothing is done"
            )
        effects.run(renameprotocol.give_up(moves_key=facts.public_key is not None), self)
        raise NoSuchVm(facts.old, f"(UUID {facts.uuid}) on any host any more; its rename has ended")

    def begin(self) -> None:
        """Record the rename under both names, the new one first: the VM keeps the old one."""
        for name in (self.facts.new, self.facts.old):
            renameorders.begin(self._orders[name], self.facts)

    def enter(self, phase: str) -> None:
        """Enter a phase under both names."""
        for name in (self.facts.new, self.facts.old):
            renameorders.enter(self._orders[name], phase, self.facts)

    def accept(self) -> None:
        """Accept the guest's key under the new name, too."""
        facts, opts = self.facts, self._cloud.opts
        current_key = minionkeys.read_accepted(opts, facts.new)
        if current_key not in (None, (facts.public_key or "").strip()):
            raise NameTaken(
                f"the master has accepted another key of {facts.new!r} meanwhile; see whose it is "
                f"(salt-key -f {shlex.quote(facts.new)}), and delete it"
            )
        minionkeys.accept(opts, facts.new, facts.public_key or "")

    def order(self) -> bool:
        """Have the host rename the VM; return False if it has changed nothing."""
        cloud = self._cloud
        order_id = minions.new_id()
        self.facts = facts = replace(self.facts, order_id=order_id)
        self.enter(renameprotocol.RENAMING)
        # If the host is silent afterwards, the VM is known to be there, under either name.
        seen = ReportedNames(name=facts.new, presence_by_host={facts.host: _PLACED})
        lastseen.refresh(cloud.opts, seen)
        watch = hostcommands.progress_watcher(cloud, _PROGRESS, facts.host, facts.new)
        kwarg = _host_kwarg(facts)
        try:
            hostcommands.act(
                cloud,
                facts.host,
                FUN,
                facts.old,
                facts.new,
                kwarg=kwarg,
                watch=watch,
                order_id=order_id,
            )
        except (KeyboardInterrupt, SystemExit):
            raise self._unknown("interrupted") from None
        except HostUnresponsive as error:
            raise self._unknown(error) from error
        except HostCommandFailed as error:
            if error.kind not in _REFUSALS:
                raise self._unknown(error) from error
            self._error = error
            if not self._was_ordered:
                lastseen.record_absence(cloud.opts, facts.new, facts.host)
            return False
        return True

    def _unknown(self, reason: object) -> HostCommandFailed:
        """Return the error for an outcome that is not known."""
        record = self._orders[self.facts.old].now
        return HostCommandFailed(f"{reason}; {renameorders.describe(record)}")

    def place(self) -> None:
        """Record where the VM is, under its new name alone."""
        facts, opts = self.facts, self._cloud.opts
        lastseen.record_move(opts, facts.new, facts.host)
        lastseen.record_removal(opts, facts.old)
        authorization.forget(opts, facts.old, facts.host)

    def discard_old(self) -> None:
        """Delete the guest's key under the former name."""
        minionkeys.delete(self._cloud.opts, self.facts.old, self.facts.public_key)

    def discard_new(self) -> None:
        """Remove the guest's key under the new name."""
        minionkeys.discard(self._cloud.opts, self.facts.new, self.facts.public_key or "")

    def end_old(self) -> None:
        """End the record under the former name."""
        self._orders[self.facts.old].end()

    def end_new(self) -> None:
        """End the record under the new name."""
        self._orders[self.facts.new].end()
