"""Find which of many VMs exist, and place the others, by one answer of each host."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastseen, presence
from saltvirt.cluster.inventory.whereabouts import Whereabouts
from saltvirt.core import terminal
from saltvirt.core.errors import NameTaken, VirtError
from saltvirt.core.journal import records
from saltvirt.core.journal.records import LockedRecord
from saltvirt.core.model import Policy, Requirements
from saltvirt.migration.master import recovery
from saltvirt.placement import choose, whatif
from saltvirt.placement.answers import HostInfo
from saltvirt.placement.many import Plan, plan_many
from saltvirt.vm.create.master import deploy, offers
from saltvirt.vm.create.master.hostbuild import Request
from saltvirt.vm.create.master.many.lines import first_few, no_place
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
    taken
        ``{name: reason}`` of the VMs that cannot be built now.
    """

    new: list[Request] = field(default_factory=list)
    exists: dict[str, str] = field(default_factory=dict)
    taken: dict[str, str] = field(default_factory=dict)


class Picture:
    """The answers of all hypervisors, requested once for all names."""

    def __init__(
        self,
        cloud: Cloud,
        requests: Sequence[Request],
        required: Collection[Requirements],
        policy: Policy,
    ) -> None:
        first_request = requests[0]
        all_hosts = inventory.all_hosts(cloud)
        self.wanted = frozenset(
            inventory.narrow(cloud, all_hosts, first_request.where, first_request.host)
        )
        cloud.progress("Searching", detail=terminal.count_text(len(all_hosts), "hypervisor"))
        self.found = offers.survey(cloud, all_hosts, all_hosts, required, policy).found
        if not self.found.answers:
            raise self.found.silence()
        self._cloud, self._asked = cloud, {request.name for request in requests}
        self._said_why = f"not the host asked for ({first_request.host})"
        if first_request.host is None:
            self._said_why = f"not in where={first_request.where}"

    @property
    def answers(self) -> dict[str, HostInfo]:
        """The answer of each host."""
        return self.found.answers

    @cached_property
    def _names(self) -> frozenset[str]:
        return presence.names(self.answers)

    @cached_property
    def _elsewhere(self) -> frozenset[str]:
        """The names last seen on hosts that gave no answer."""
        names_by_host = lastseen.read_all(self._cloud.opts)
        return frozenset(
            n for h, names in names_by_host.items() if h not in self.answers for n in names
        )

    def beside(self, name: str) -> list[str]:
        """Return the other VMs, existing or requested, with which disk names may clash."""
        return presence.find_similar_names(name, (self._names | self._asked) - {name})

    def of(
        self, request: Request, pending_job: PendingJob, noted_hosts: Iterable[str]
    ) -> deploy.Hosts:
        """
        Return all hosts' answers on one VM; see
        :func:`saltvirt.vm.create.master.deploy.assess_hosts`.
        """
        name, noted_hosts = request.name, list(noted_hosts)
        presence_by_host = presence.from_answers(self.answers, name)
        # Most names are unknown everywhere, so no host need be asked further.
        is_unknown = name not in self._names and name not in self._elsewhere
        if is_unknown and not (pending_job.reasons or noted_hosts):
            return deploy.Hosts(
                found=self.found,
                wanted=self.wanted,
                vm=Whereabouts(name=name, presence_by_host=presence_by_host),
            )
        return deploy.assess_hosts(
            self._cloud, request, self.found, self.wanted, pending_job, noted_hosts
        )

    def plan(self, requests: Iterable[Requirements], policy: Policy) -> Plan:
        """Return where the VMs go."""
        return plan_many(
            requests,
            self.answers,
            weights=self._cloud.settings.weights,
            policy=policy,
            among=self.wanted,
        )

    def why_nowhere(self, reasons_by_host: Mapping[str, str]) -> str:
        """Return one line on why a VM has no place, by the reason of each host."""
        reasons = {**reasons_by_host, **self.found.reasons()}
        # These hosts count for groups and headroom only, so this reason replaces their own.
        for host in self.answers.keys() - self.wanted:
            reasons[host] = self._said_why
        return no_place(reasons)

    def next_best(
        self,
        required: Requirements,
        other_vms: Mapping[str, tuple[Requirements, str]],
        refusals_by_host: Mapping[str, Iterable[str]],
        policy: Policy,
    ) -> tuple[str | None, dict[str, str]]:
        """
        Return the best host for a VM that its own host refused, and why other hosts cannot take it.

        other_vms
            ``{name: (requirements, host)}`` of the other VMs, built or planned.
        refusals_by_host
            ``{host: reasons}`` of the hosts that refused.
        """
        infos_by_host = dict(self.answers)
        for other_required, host in other_vms.values():
            infos_by_host[host] = whatif.with_vm(infos_by_host[host], other_required)
        evaluated = choose.evaluate(infos_by_host, required, self._cloud.settings.weights, policy)
        ranked = [
            v for v in choose.apply_refusals(evaluated, refusals_by_host) if v.host in self.wanted
        ]
        reasons_by_host = {
            evaluation.host: "; ".join(evaluation.reasons)
            for evaluation in ranked
            if not evaluation.fits
        }
        return next(
            (evaluation.host for evaluation in ranked if evaluation.fits), None
        ), reasons_by_host


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
    requests: Iterable[Request],
    picture: Picture,
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
        noted_hosts = interrupted.order_hosts(order) if order else []
        hosts = picture.of(request, pending_jobs.get(name, PendingJob()), noted_hosts)
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
                difference = describe_difference(
                    request.required(), picture.answers[complete_hosts[0]]
                )
                out.exists[name] = complete_hosts[0]
                clashes += (
                    [f"{name!r} is on {complete_hosts[0]} with {difference}"] if difference else []
                )
                continue
            deploy.refuse_taken(hosts.vm, settle_text)
        except NameTaken as error:
            out.taken[name] = str(error)
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
