"""Which of many VMs exist already, and where the others go, by what all hosts say once."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from saltvirt import records, terminal
from saltvirt.errors import NameTaken, VirtError
from saltvirt.fleet import (
    deploy,
    hints,
    interrupted,
    inventory,
    keys,
    moves,
    offers,
    orders,
    sightings,
)
from saltvirt.fleet.building import Request
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.many.lines import first_few, no_place
from saltvirt.model import Policy, Requirements
from saltvirt.placement import choose, whatif
from saltvirt.placement.answers import HostInfo
from saltvirt.placement.many import Plan, plan_many
from saltvirt.records import LockedRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedNames:
    """
    What becomes of the names that are asked for.

    new
        Those that are to be built.
    exists
        ``{name: host}`` of those that are there as they are asked for.
    taken
        ``{name: why}`` of those that cannot be built now.
    """

    new: list[Request] = field(default_factory=list)
    exists: dict[str, str] = field(default_factory=dict)
    taken: dict[str, str] = field(default_factory=dict)


class Picture:
    """All hypervisors as they answered once, for all of the names."""

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
        """What each host said."""
        return self.found.answers

    @cached_property
    def _names(self) -> frozenset[str]:
        return sightings.names(self.answers)

    @cached_property
    def _elsewhere(self) -> frozenset[str]:
        """The names that were on hosts which gave no answer."""
        names_by_host = hints.read_all(self._cloud.opts)
        return frozenset(
            n for h, names in names_by_host.items() if h not in self.answers for n in names
        )

    def beside(self, name: str) -> list[str]:
        """Return the other VMs, there or asked for, whose disks may be called as one of its own."""
        return sightings.find_similar_names(name, (self._names | self._asked) - {name})

    def of(
        self, request: Request, busy_reasons: Mapping[str, str], noted_hosts: Iterable[str]
    ) -> deploy.Hosts:
        """Return what all hosts say of one VM; see :func:`saltvirt.fleet.deploy.heard`."""
        name, noted_hosts = request.name, list(noted_hosts)
        presence_by_host = sightings.from_host_info(self.answers, name)
        # For most names there is nothing that would have to be asked further.
        is_unknown = name not in self._names and name not in self._elsewhere
        if is_unknown and not (busy_reasons or noted_hosts):
            return deploy.Hosts(found=self.found, wanted=self.wanted, seen=presence_by_host)
        return deploy.assess_hosts(
            self._cloud, request, self.found, self.wanted, busy_reasons, noted_hosts
        )

    def plan(self, requests: Iterable[Requirements], policy: Policy) -> Plan:
        """Return where VMs go."""
        return plan_many(
            requests,
            self.answers,
            weights=self._cloud.settings.weights,
            policy=policy,
            among=self.wanted,
        )

    def why_nowhere(self, reasons_by_host: Mapping[str, str]) -> str:
        """Return one line that says why a VM has no place; ``why``: each host's reason."""
        reasons = {**reasons_by_host, **self.found.reasons()}
        # Whatever is said of them: they count for groups and headroom alone.
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
        Return the best host for a VM whose own has refused it, and why each does not take it.

        beside
            ``{name: (what it takes, its host)}`` of the others that are built, or will be.
        refused
            ``{host: reasons}`` of those that did.
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
) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """
    Settle moves, and have hosts never begin what interrupted commands have ordered of names.

    Returns what ``interrupted.give_up`` does of each, and ``{name: why}`` of those with a move that
    cannot be settled now: these are not built, and the others have nothing to do with it.
    """
    busy_reasons, stuck_reasons = {}, {}
    for name, order in orders_by_name.items():
        try:
            moves.settle_order(cloud, order)
        except VirtError as error:
            stuck_reasons[name] = str(error)
        else:
            busy_reasons[name] = interrupted.give_up(cloud, order)
    return busy_reasons, stuck_reasons


def sort_names(
    cloud: Cloud,
    requests: Iterable[Request],
    picture: Picture,
    orders_by_name: Mapping[str, LockedRecord],
    busy_reasons: Mapping[str, Mapping[str, str]],
) -> SortedNames:
    """
    Return what becomes of each name, once what interrupted commands left is settled.

    held
        Their orders. Without them nothing is settled.

    Raises NameTaken if one is another VM's, or a minion's.
    """
    out, clashes = SortedNames(), []
    for request in requests:
        name, order = request.name, orders_by_name.get(request.name)
        noted_hosts = interrupted.order_hosts(order) if order else []
        hosts = picture.of(request, busy_reasons.get(name, {}), noted_hosts)
        complete_hosts = [
            host for host, vm_presence in hosts.seen.items() if vm_presence.is_complete
        ]
        try:
            settle_text = (
                interrupted.settle(cloud.opts, order, hosts.seen, hosts.unheard) if order else ""
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
            deploy.refuse_taken(hosts, name, settle_text)
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
    # Where nothing is settled, the key that an interrupted command has made is still there.
    order_key = (orders.read_facts(record).public_key or "").strip()
    is_taken = keys.read_accepted(cloud.opts, name) not in (None, order_key)
    return [f"a minion called {name!r} is accepted on this master"] if is_taken else []


def describe_difference(required: Requirements, info: HostInfo) -> str:
    """Return what a VM that a host has is, where that is not what is asked for; empty if it is."""
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
