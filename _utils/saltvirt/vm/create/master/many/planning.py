"""Find which of many VMs exist, and place the others, by one answer of each host."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import lastseen, presence
from saltvirt.cluster.inventory.whereabouts import Whereabouts
from saltvirt.core import terminal
from saltvirt.core.errors import NameTaken, VirtError
from saltvirt.core.journal import records
from saltvirt.core.journal.records import LockedRecord
from saltvirt.core.model import Requirements
from saltvirt.migration.master import recovery
from saltvirt.placement import choose, whatif
from saltvirt.placement.answers import HostInfo
from saltvirt.placement.many import Plan, plan_many
from saltvirt.vm.create.master import deploy, minionwait, offers
from saltvirt.vm.create.master.many.manyrequest import Call, first_few, no_place
from saltvirt.vm.create.master.vmrequest import VmRequest
from saltvirt.vm.recovery.master import interrupted
from saltvirt.vm.recovery.master.interrupted import PendingJob


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedNames:
    """
    The requested names, by what becomes of them.

    new
        The VMs to build.
    exists
        ``{name: host}`` of the VMs that exist as requested.
    failed
        ``{name: reason}`` of the VMs that cannot be built now.
    """

    new: list[VmRequest] = field(default_factory=list)
    exists: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


class HostAnswers:
    """The answers of all hypervisors, requested once for all names."""

    def __init__(self, cloud: Cloud, call: Call) -> None:
        self._cloud, self.terms = cloud, call.terms
        all_hosts, self.allowed_hosts = deploy.list_hosts(cloud, call.terms)
        requirements = [request.requirements for request in call.requests]
        self.survey = offers.survey(
            cloud, all_hosts, all_hosts, requirements, call.terms.policy
        ).survey
        if not self.survey.answers:
            raise self.survey.no_answers_error()
        self._new_names = {request.name for request in call.requests}

    @property
    def answers(self) -> dict[str, HostInfo]:
        """The answer of each host."""
        return self.survey.answers

    @cached_property
    def _names(self) -> frozenset[str]:
        return presence.names(self.answers)

    @cached_property
    def _names_of_unresponsive(self) -> frozenset[str]:
        """The names last seen on hosts that gave no answer."""
        names_by_host = lastseen.read_all(self._cloud.opts)
        return frozenset(
            n for h, names in names_by_host.items() if h not in self.answers for n in names
        )

    def similar_names(self, name: str) -> list[str]:
        """Return the other VMs, existing or requested, with which disk names may clash."""
        return presence.find_similar_names(name, (self._names | self._new_names) - {name})

    def hosts_for(
        self, request: VmRequest, pending_job: PendingJob, order_hosts: list[str]
    ) -> deploy.Candidates:
        """
        Return all hosts' answers on one VM; see
        :func:`saltvirt.vm.create.master.deploy.assess_hosts`.
        """
        # Most names are unknown everywhere, so no host need be asked further.
        is_unknown = request.name not in self._names | self._names_of_unresponsive
        if is_unknown and not (pending_job.reasons or order_hosts):
            presence_by_host = presence.from_answers(self.answers, request.name)
            return deploy.Candidates(
                survey=self.survey,
                allowed_hosts=self.allowed_hosts,
                vm=Whereabouts(name=request.name, presence_by_host=presence_by_host),
            )
        return deploy.assess_hosts(
            self._cloud, request, self.survey, self.allowed_hosts, pending_job, order_hosts
        )

    def plan(self, requests: Iterable[VmRequest]) -> Plan:
        """Return where the VMs go."""
        return plan_many(
            [request.requirements for request in requests],
            self.answers,
            weights=self._cloud.settings.weights,
            policy=self.terms.policy,
            among=self.allowed_hosts,
        )

    def no_place_text(self, reasons_by_host: Mapping[str, str]) -> str:
        """Return one line on why a VM has no place, by the reason of each host."""
        reasons = {**reasons_by_host, **self.survey.reasons()}
        # These hosts count for groups and headroom only, so this reason replaces their own.
        for host in self.answers.keys() - self.allowed_hosts:
            reasons[host] = self.terms.other_host_reason
        return no_place(reasons)

    def next_best(
        self,
        request: VmRequest,
        other_vms: Iterable[tuple[VmRequest, str]],
        refusals_by_host: Mapping[str, Iterable[str]],
    ) -> tuple[str | None, dict[str, str]]:
        """
        Return the best host for a VM that its own host refused, and why other hosts cannot take it.

        other_vms
            ``(request, host)`` of the other VMs, built or planned.
        refusals_by_host
            ``{host: reasons}`` of the hosts that refused.
        """
        infos_by_host = dict(self.answers)
        for other_vm, host in other_vms:
            infos_by_host[host] = whatif.with_vm(infos_by_host[host], other_vm.requirements)
        evaluated = choose.evaluate(
            infos_by_host, request.requirements, self._cloud.settings.weights, self.terms.policy
        )
        ranked = [
            evaluation
            for evaluation in choose.apply_refusals(evaluated, refusals_by_host)
            if evaluation.host in self.allowed_hosts
        ]
        reasons_by_host = {
            evaluation.host: "; ".join(evaluation.reasons)
            for evaluation in ranked
            if not evaluation.fits
        }
        best_host = next((evaluation.host for evaluation in ranked if evaluation.fits), None)
        return best_host, reasons_by_host


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployPlan:
    """The hosts' answers, the names that exist, and where the others go."""

    hosts: HostAnswers
    names: SortedNames
    plan: Plan

    def failed(self) -> dict[str, str]:
        """Return ``{name: reason}`` of the VMs that cannot be built."""
        texts_by_id: dict[int, str] = {}
        for host_reasons in self.plan.unplaced.values():
            # VMs with the same needs share this object, and so the text.
            texts_by_id.setdefault(id(host_reasons), self.hosts.no_place_text(host_reasons))
        unplaced = {
            name: texts_by_id[id(host_reasons)] for name, host_reasons in self.plan.unplaced.items()
        }
        return {**self.names.failed, **unplaced}


def make_plan(cloud: Cloud, call: Call, orders_by_name: Mapping[str, LockedRecord]) -> DeployPlan:
    """
    Return the plan of a call, by one answer of each host.

    orders_by_name
        Orders that the call holds; empty for a dry run.

    Raises NameTaken if a name belongs to another VM, or to a minion.
    """
    pending_jobs, stuck_reasons = give_up(cloud, orders_by_name)
    hosts = HostAnswers(cloud, call)
    settled_requests = [request for request in call.requests if request.name not in stuck_reasons]
    names = sort_names(cloud, settled_requests, hosts, orders_by_name, pending_jobs)
    names.failed.update(stuck_reasons)
    plan = hosts.plan(names.new)
    cloud.progress("Placing", detail=_describe_plan(plan, names))
    minionwait.refuse_unproved(cloud.opts, names.new, hosts.answers)
    return DeployPlan(hosts=hosts, names=names, plan=plan)


def _describe_plan(plan: Plan, names: SortedNames) -> str:
    hosts_text = terminal.count_text(len(set(plan.hosts.values())), "host")
    exists_text = f"; {len(names.exists)} there already" if names.exists else ""
    return f"{terminal.count_text(len(plan.hosts), 'VM')} on {hosts_text}{exists_text}"


def give_up(
    cloud: Cloud, orders_by_name: Mapping[str, LockedRecord]
) -> tuple[dict[str, PendingJob], dict[str, str]]:
    """
    Settle moves, and have hosts refuse what interrupted commands ordered.

    Returns the results of ``interrupted.give_up`` by name, and ``{name: reason}`` of names with a
    move that cannot be settled now: these VMs are not built, and the others are not affected.
    """
    pending_jobs, stuck_reasons = {}, {}
    for name, order in orders_by_name.items():
        try:
            recovery.settle_order(cloud, order)
        except VirtError as error:
            stuck_reasons[name] = str(error)
        else:
            pending_jobs[name] = interrupted.give_up(cloud, order)
    return pending_jobs, stuck_reasons


def sort_names(
    cloud: Cloud,
    requests: Iterable[VmRequest],
    host_answers: HostAnswers,
    orders_by_name: Mapping[str, LockedRecord],
    pending_jobs: Mapping[str, PendingJob],
) -> SortedNames:
    """
    Return what becomes of each name, after settling what interrupted commands left.

    orders_by_name
        Orders that this call holds. A name without one is not settled.

    Raises NameTaken if a name belongs to another VM, or to a minion.
    """
    out, clashes = SortedNames(), []
    for request in requests:
        name, order = request.name, orders_by_name.get(request.name)
        order_hosts = interrupted.order_hosts(order) if order else []
        hosts = host_answers.hosts_for(request, pending_jobs.get(name, PendingJob()), order_hosts)
        presence_by_host = hosts.vm.presence_by_host
        complete_hosts = [
            host for host, vm_presence in presence_by_host.items() if vm_presence.is_complete
        ]
        try:
            settle_text = (
                interrupted.settle(cloud.opts, order, presence_by_host, hosts.vm.may_have)
                if order
                else ""
            )
            if len(complete_hosts) == 1:
                host = out.exists[name] = complete_hosts[0]
                difference = describe_difference(request.requirements, host_answers.answers[host])
                clashes += [f"{name!r} is on {host} with {difference}"] if difference else []
                continue
            deploy.refuse_taken(hosts.vm, settle_text)
        except NameTaken as error:
            out.failed[name] = str(error)
            continue
        clashes += _keys_taken(cloud, name)
        out.new.append(request)
    if clashes:
        raise NameTaken(
            f"nothing was built: {first_few(clashes)}; choose other names, or remove those"
        )
    return out


def _keys_taken(cloud: Cloud, name: str) -> list[str]:
    record = records.read_record(orders.folder(cloud.opts), orders.PURPOSE, name)
    # Without settling, the key that an interrupted command made still exists.
    order_key = (orders.read_facts(record).public_key or "").strip()
    is_taken = minionkeys.read_accepted(cloud.opts, name) not in (None, order_key)
    return [f"a minion called {name!r} is accepted on this master"] if is_taken else []


def describe_difference(required: Requirements, info: HostInfo) -> str:
    """Return how an existing VM differs from the request; empty if it does not."""
    vm = info.vms[required.name]
    differences = []
    if (vm.vcpus, vm.memory_mib) != (required.vcpus, required.memory_mib):
        differences.append(f"{vm.vcpus} CPUs and {vm.memory_mib} MiB")
    for word, actual, expected in (
        ("affinity", vm.affinity, required.affinity),
        ("anti_affinity", vm.anti_affinity, required.anti_affinity),
    ):
        if set(actual) != set(expected):
            differences.append(f"{word}={','.join(sorted(actual)) or 'none'}")
    return " and ".join(differences)
