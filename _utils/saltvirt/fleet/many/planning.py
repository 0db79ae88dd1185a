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
from saltvirt.fleet.many.lines import no_place, some
from saltvirt.model import Policy, Requirements
from saltvirt.placement import choose, whatif
from saltvirt.placement.answers import HostInfo
from saltvirt.placement.many import Plan, plan_many
from saltvirt.records import Held


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorted:
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
        one = requests[0]
        every = inventory.every(cloud)
        self.wanted = frozenset(inventory.narrow(cloud, every, one.where, one.host))
        cloud.progress("Searching", detail=terminal.counted(len(every), "hypervisor"))
        self.found = offers.survey(cloud, every, every, required, policy).found
        if not self.found.answers:
            raise self.found.silence()
        self._cloud, self._asked = cloud, {request.name for request in requests}
        self._said_why = f"not the host asked for ({one.host})"
        if one.host is None:
            self._said_why = f"not in where={one.where}"

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
        known = hints.every(self._cloud.opts)
        return frozenset(n for h, there in known.items() if h not in self.answers for n in there)

    def beside(self, name: str) -> list[str]:
        """Return the other VMs, there or asked for, whose disks may be called as one of its own."""
        return sightings.alike(name, (self._names | self._asked) - {name})

    def of(self, request: Request, late: Mapping[str, str], noted: Iterable[str]) -> deploy.Hosts:
        """Return what all hosts say of one VM; see :func:`saltvirt.fleet.deploy.heard`."""
        name, noted = request.name, list(noted)
        seen = sightings.of_info(self.answers, name)
        # For most names there is nothing that would have to be asked further.
        is_unknown = name not in self._names and name not in self._elsewhere
        if is_unknown and not (late or noted):
            return deploy.Hosts(found=self.found, wanted=self.wanted, seen=seen)
        return deploy.heard(self._cloud, request, self.found, self.wanted, late, noted)

    def plan(self, requests: Iterable[Requirements], policy: Policy) -> Plan:
        """Return where VMs go."""
        return plan_many(
            requests,
            self.answers,
            weights=self._cloud.settings.weights,
            policy=policy,
            among=self.wanted,
        )

    def why_nowhere(self, why: Mapping[str, str]) -> str:
        """Return one line that says why a VM has no place; ``why``: each host's reason."""
        reasons = {**why, **self.found.reasons()}
        # Whatever is said of them: they count for groups and headroom alone.
        for host in self.answers.keys() - self.wanted:
            reasons[host] = self._said_why
        return no_place(reasons)

    def next_best(
        self,
        required: Requirements,
        beside: Mapping[str, tuple[Requirements, str]],
        refused: Mapping[str, Iterable[str]],
        policy: Policy,
    ) -> tuple[str | None, dict[str, str]]:
        """
        Return the best host for a VM whose own has refused it, and why each does not take it.

        beside
            ``{name: (what it takes, its host)}`` of the others that are built, or will be.
        refused
            ``{host: reasons}`` of those that did.
        """
        after = dict(self.answers)
        for other, host in beside.values():
            after[host] = whatif.with_vm(after[host], other)
        evaluated = choose.evaluate(after, required, self._cloud.settings.weights, policy)
        ranked = [v for v in choose.overruled(evaluated, refused) if v.host in self.wanted]
        why = {one.host: "; ".join(one.reasons) for one in ranked if not one.fits}
        return next((one.host for one in ranked if one.fits), None), why


def give_up(
    cloud: Cloud, held: Mapping[str, Held]
) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """
    Settle moves, and have hosts never begin what interrupted commands have ordered of names.

    Returns what ``interrupted.give_up`` does of each, and ``{name: why}`` of those with a move that
    cannot be settled now: these are not built, and the others have nothing to do with it.
    """
    late, stuck = {}, {}
    for name, order in held.items():
        try:
            moves.settle_order(cloud, order)
        except VirtError as error:
            stuck[name] = str(error)
        else:
            late[name] = interrupted.give_up(cloud, order)
    return late, stuck


def sort(
    cloud: Cloud,
    requests: Iterable[Request],
    picture: Picture,
    held: Mapping[str, Held],
    late: Mapping[str, Mapping[str, str]],
) -> Sorted:
    """
    Return what becomes of each name, once what interrupted commands left is settled.

    held
        Their orders. Without them nothing is settled.

    Raises NameTaken if one is another VM's, or a minion's.
    """
    out, clash = Sorted(), []
    for request in requests:
        name, order = request.name, held.get(request.name)
        noted = interrupted.hosts(order) if order else []
        hosts = picture.of(request, late.get(name, {}), noted)
        there = [host for host, one in hosts.seen.items() if one.is_complete]
        try:
            said = interrupted.settle(cloud.opts, order, hosts.seen, hosts.unheard) if order else ""
            if len(there) == 1:
                other = unlike(request.required(), picture.answers[there[0]])
                out.exists[name] = there[0]
                clash += [f"{name!r} is on {there[0]} with {other}"] if other else []
                continue
            deploy.refuse_taken(hosts, name, said)
        except NameTaken as error:
            out.taken[name] = str(error)
            continue
        clash += _keys_taken(cloud, name)
        out.new.append(request)
    if clash:
        raise NameTaken(f"nothing was built: {some(clash)}; choose other names, or remove those")
    return out


def _keys_taken(cloud: Cloud, name: str) -> list[str]:
    left = records.look(orders.folder(cloud.opts), orders.PURPOSE, name)
    # Where nothing is settled, the key that an interrupted command has made is still there.
    own = (orders.facts(left).public_key or "").strip()
    is_taken = keys.accepted(cloud.opts, name) not in (None, own)
    return [f"a minion called {name!r} is accepted on this master"] if is_taken else []


def unlike(required: Requirements, info: HostInfo) -> str:
    """Return what a VM that a host has is, where that is not what is asked for; empty if it is."""
    vm = info.vms[required.name]
    said = []
    if (vm.vcpus, vm.memory_mib) != (required.vcpus, required.memory_mib):
        said.append(f"{vm.vcpus} CPUs and {vm.memory_mib} MiB")
    for word, has, asked in (
        ("affinity", vm.affinity, required.affinity),
        ("anti_affinity", vm.anti_affinity, required.anti_affinity),
    ):
        if set(has) != set(asked):
            said.append(f"{word}={','.join(sorted(has)) or 'none'}")
    return " and ".join(said)
