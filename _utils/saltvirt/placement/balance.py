"""The few moves that even out the load of a cloud, by the VMs' real use, not their limits."""

import bisect
import heapq
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Any

from saltvirt.core.model import Requirements
from saltvirt.placement import fit, groups, whatif
from saltvirt.placement.answers import HostInfo, Load, MigrationInfo, VmLoad
from saltvirt.placement.load import Loads

# So many of the most loaded hosts are compared at once, with so many of the least loaded hosts
# first, and with all only if these take no VM.
_GIVERS, _TAKERS = 4, 16
# Moving memory has a cost, too: so much balance per GiB.
COST_PER_GIB = 0.0005
# The hosts' own reasons why they cannot take a VM: ``{name: {host: reasons}}``.
Refused = Mapping[str, Mapping[str, Iterable[str]]]


# The VMs that may leave a host, by their needs: name, load, and the host's share without the VM.
_Kinds = dict[Requirements, list[tuple[str, VmLoad, float]]]
_Worth = tuple[float, str, str, str, float]
# Sums of shares that differ by less are equal.
_SAME = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One move, and how much closer it brings the loads of the two hosts."""

    name: str
    source: str
    target: str
    gain: float

    def to_dict(self) -> dict[str, Any]:
        """Return the step as users see it."""
        return {
            "name": self.name,
            "from": self.source,
            "to": self.target,
            "gain": round(self.gain, 4),
        }


def imbalance(loads: Mapping[str, Load]) -> float:
    """Return how uneven the load of a cloud is, 0 for even."""
    return round(Loads(loads).spread(), 4)


def rebalance(
    hosts: Mapping[str, HostInfo],
    loads: Mapping[str, Load],
    vms: Mapping[str, MigrationInfo],
    *,
    max_moves: int,
    threshold: float,
    refused: Refused | None = None,
    done_steps: Iterable[Step] = (),
) -> list[Step]:
    """
    Return the steps, the best first; each is worth more than ``threshold`` and its own cost.

    virt.migrate takes each of them after those before it, and each is between hosts with loads that
    differ for certain, given the errors of the readings.

    hosts
        ``{host: answer of virt.host_info}``.
    loads
        ``{host: answer of virt.load}``, of several readings by ``load.average``.
    vms
        ``{name: answer of virt.migration_info}`` of the VMs; a VM that is missing, has obstacles or
        is tagged to stay, stays.
    refused
        ``{name: {host: reasons}}``: the hosts' own reasons why they cannot take a VM.
    done_steps
        Steps that were made since the answers.
    """
    cloud = _Cloud(hosts, loads, vms, threshold, refused or {})
    for done_step in done_steps:
        cloud.make(done_step)
    out: list[Step] = []
    while len(out) < max_moves and (step := cloud.best()) is not None:
        cloud.make(step)
        out.append(step)
    return out


class _Cloud:
    """The hosts after the steps so far, and the VMs that may still move."""

    def __init__(
        self,
        hosts: Mapping[str, HostInfo],
        loads: Mapping[str, Load],
        vms: Mapping[str, MigrationInfo],
        threshold: float,
        refused: Refused,
    ) -> None:
        self._hosts, self._loads, self._threshold = dict(hosts), Loads(loads), threshold
        self._refused, self._spots = refused, groups.Spots(hosts)
        settled_names = _settled_vms(hosts)
        self._needs = {
            name: whatif.needs_of_move(moving)
            for name, moving in vms.items()
            if not moving.obstacles and not moving.stay and name in settled_names
        }
        self._standing: dict[tuple[str, Requirements], bool] = {}
        self._room = {host: tuple(fit.free(info).values()) for host, info in hosts.items()}
        # The most loaded first, equal ones by name.
        self._hottest = sorted((-share, host) for host, share in self._loads.shares.items())
        self._memory = _Memory()

    def make(self, step: Step) -> None:
        """Count a step as made; a VM moves once."""
        required, hosts, shares = self._needs.pop(step.name), self._hosts, self._loads.shares
        step_hosts = (step.source, step.target)
        for host in step_hosts:
            del self._hottest[bisect.bisect_left(self._hottest, (-shares[host], host))]
        before = self._loads.total
        self._loads.move(step.name, step.source, step.target)
        self._spots.move(required, step.source, step.target)
        hosts[step.source] = whatif.without_vm(hosts[step.source], required)
        hosts[step.target] = whatif.with_vm(hosts[step.target], required)
        for host in step_hosts:
            self._room[host] = tuple(fit.free(hosts[host]).values())
            bisect.insort(self._hottest, (-shares[host], host))
        # Evenness depends on the mean, and the hosts that a group allows on all of its VMs.
        is_for_all = abs(self._loads.total - before) > _SAME
        is_for_all = is_for_all or bool(required.affinity or required.anti_affinity)
        self._memory.changed(step_hosts, is_for_all=is_for_all)

    def best(self) -> Step | None:
        """Return the best step now, None if no step is worth it."""
        givers = (host for _, host in self._hottest if self._kinds(host))
        while batch := list(islice(givers, _GIVERS)):
            for count in (_TAKERS, None):
                pairs = [pair for host in batch for pair in self._pairs(host, count)]
                # Checking a host's answer takes longer than computing all gains.
                for worth in heapq.merge(*pairs):
                    step = Step(name=worth[1], source=worth[3], target=worth[2], gain=worth[4])
                    if self._is_taken(step):
                        return step
            self._memory.barren(batch)
        return None

    def _kinds(self, host: str) -> _Kinds:
        """Return the VMs that may leave a host, by those of their needs that are not sizes."""
        if host not in self._memory.kinds:
            host_vms, kinds = self._hosts[host].vms, _Kinds()
            for name, vm in sorted(self._loads.vms[host].items()):
                if name in self._needs and name in host_vms:
                    share_without = self._loads.share(host, -vm.cpu, -vm.memory_mib)
                    kinds.setdefault(_without_size(self._needs[name]), []).append(
                        (name, vm, share_without)
                    )
            self._memory.kinds[host] = kinds
        return self._memory.kinds[host]

    def _pairs(self, source: str, count: int | None) -> Iterator[Sequence[_Worth]]:
        """Yield the steps that are worth it, the best first, for each of ``count`` cool hosts."""
        shares, (least, _most) = self._loads.shares, self._loads.surely(source)
        changed_targets = self._memory.since_barren(source)

        def reach() -> Iterator[str]:
            coolest = takewhile(
                lambda entry: shares[source] + entry[0] > self._threshold, reversed(self._hottest)
            )
            return (host for _, host in coolest if least > self._loads.surely(host)[1])

        for make in self._kinds(source):
            able_hosts = (host for host in reach() if self._may_take(host, make))
            for target in islice(able_hosts, count):
                if changed_targets is None or target in changed_targets:
                    yield self._pair(source, target, make, is_kept=count is not None)

    def _pair(
        self, source: str, target: str, make: Requirements, *, is_kept: bool
    ) -> Sequence[_Worth]:
        worths = self._memory.pairs[source].get((target, make))
        if worths is None:
            worths = sorted(self._worth(source, target, make))
            if is_kept:
                self._memory.keep(source, target, make, worths)
        return worths

    def _worth(self, source: str, target: str, make: Requirements) -> Iterator[_Worth]:
        """Yield the steps that are worth it: ``(negative worth, name, target, source, gain)``."""
        source_share, target_share = self._loads.shares[source], self._loads.shares[target]
        difference, room = source_share - target_share, self._room[target]
        for name, vm, source_after in self._kinds(source)[make]:
            # The step must relieve the source, and the target must stay below the source's former
            # share.
            if source_after >= source_share or difference <= (source_share - source_after) / 2:
                continue
            target_after = self._loads.share(target, vm.cpu, vm.memory_mib)
            required = self._needs[name]
            cost = COST_PER_GIB * required.memory_mib / 1024
            # How much closer the two come: this does not depend on the size of the cloud.
            gain = difference - abs(source_after - target_after) - cost
            if gain <= self._threshold or target in self._refused.get(name, ()):
                continue
            size = (required.vcpus, required.memory_mib, required.disk_mib)
            if all(map(operator.le, size, room)):
                # By how much the squares become less: of equal gains, the one between the two hosts
                # that are furthest apart counts most.
                squares = (
                    source_share * source_share
                    + target_share * target_share
                    - source_after * source_after
                    - target_after * target_after
                )
                yield cost * difference - squares, name, target, source, gain

    def _may_take(self, host: str, make: Requirements) -> bool:
        key = (host, make)
        if key not in self._standing:
            self._standing[key] = not fit.standing_reasons(self._hosts[host], make)
        return self._standing[key]

    def _is_taken(self, step: Step) -> bool:
        """Return whether virt.migrate would take a step that evens out and parts no group."""
        required = self._needs[step.name]
        changes = self._loads.after(step.name, step.source, step.target)
        if not self._loads.spread(changes) < self._loads.spread():
            return False
        is_apart = any(
            step.source in self._spots.hosts(group, required.name) for group in required.affinity
        )
        return not (
            is_apart
            or fit.reasons(self._hosts[step.target], required)
            or any(self._spots.why_apart(required, step.target))
        )


class _Memory:
    """Results for hosts that have not changed since."""

    def __init__(self) -> None:
        self.kinds: dict[str, _Kinds] = {}
        self.pairs: dict[str, dict[tuple[str, Requirements], Sequence[_Worth]]] = defaultdict(dict)
        self._givers: dict[str, set[str]] = defaultdict(set)
        self._changes: list[str] = []
        self._barren: dict[str, int] = {}

    def keep(self, source: str, target: str, make: Requirements, worths: Sequence[_Worth]) -> None:
        """Keep the steps that are worth it between two hosts."""
        self.pairs[source][target, make] = worths
        self._givers[target].add(source)

    def changed(self, hosts: Iterable[str], *, is_for_all: bool) -> None:
        """Forget the results that change with these hosts."""
        for host in hosts:
            self.kinds.pop(host, None)
            self.pairs.pop(host, None)
            for source in self._givers.pop(host, ()):
                of_source = self.pairs[source]
                for key in [key for key in of_source if key[0] == host]:
                    del of_source[key]
            self._barren.pop(host, None)
            self._changes.append(host)
        if is_for_all:
            self._barren.clear()

    def barren(self, sources: Iterable[str]) -> None:
        """Record that no host takes a VM from these."""
        self._barren.update(dict.fromkeys(sources, len(self._changes)))

    def since_barren(self, source: str) -> set[str] | None:
        """Return the hosts that changed since none took a VM of the source; None if some may."""
        since = self._barren.get(source)
        return None if since is None else set(self._changes[since:])


def _without_size(required: Requirements) -> Requirements:
    """Return those of a VM's needs that are the same for VMs of one make."""
    return replace(
        required, name="", vcpus=0, memory_mib=0, disk_mib=0, affinity=(), anti_affinity=()
    )


def _settled_vms(hosts: Mapping[str, HostInfo]) -> set[str]:
    """Return the names of the VMs that are on one host, and on their way to none."""
    host_counts = Counter(name for info in hosts.values() for name in {*info.vms, *info.building})
    coming = {name for info in hosts.values() for name in info.building}
    return {name for name, count in host_counts.items() if count == 1} - coming
