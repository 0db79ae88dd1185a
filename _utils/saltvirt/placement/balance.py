"""Which few moves even out the load of a cloud: from what VMs really use, not what they may."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from saltvirt.model import Requirements
from saltvirt.placement import fit, groups, requirements, whatif
from saltvirt.placement.answers import HostInfo, Load, MigrationInfo
from saltvirt.placement.load import Loads

# So many of the most loaded hosts are looked at together, and so many of the least loaded first:
# only where these find nothing is the next pair of them looked at.
_GIVERS, _TAKERS = 4, 16
# Moving memory costs too: so much balance per GiB.
COST_PER_GIB = 0.0005
# Why hosts have said themselves that they cannot take a VM: ``{name: {host: reasons}}``.
Refused = Mapping[str, Mapping[str, Iterable[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One move, and by how much closer it brings the loads of the two hosts."""

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
    made: Iterable[Step] = (),
) -> list[Step]:
    """
    Return the steps, the best first; each is worth more than ``threshold`` and its own cost.

    Each is one that virt.migrate takes when those before it are made, and it is between hosts whose
    loads surely differ, whatever chance there is in what was read.

    hosts
        ``{host: answer of virt.host_info}``.
    loads
        ``{host: answer of virt.load}``, of several readings by ``load.over``.
    vms
        ``{name: answer of virt.migration_info}`` of the VMs; one that is not there, that has
        obstacles or is tagged to stay, stays.
    refused
        ``{name: {host: reasons}}`` of hosts that have said themselves that they cannot take a VM.
    made
        Steps that were made since all this was asked.
    """
    cloud = _Cloud(hosts, loads, vms, threshold, refused or {})
    for one in made:
        cloud.make(one)
    out: list[Step] = []
    while len(out) < max_moves and (step := cloud.best()) is not None:
        cloud.make(step)
        out.append(step)
    return out


class _Cloud:
    """The hosts as they are after the steps so far, and which VMs may still move."""

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
        settled = _settled(hosts)
        self._needs = {
            name: requirements.of(moving)
            for name, moving in vms.items()
            if not moving.obstacles and not moving.stay and name in settled
        }
        self._makes: dict[str, Requirements] = {}
        self._standing: dict[tuple[str, Requirements], bool] = {}
        self._room = {host: tuple(fit.free(info).values()) for host, info in hosts.items()}

    def make(self, step: Step) -> None:
        """Count a step as made; a VM moves once."""
        required, hosts = self._needs.pop(step.name), self._hosts
        self._loads.move(step.name, step.source, step.target)
        self._spots.move(required, step.source, step.target)
        hosts[step.source] = whatif.without_vm(hosts[step.source], required)
        hosts[step.target] = whatif.with_vm(hosts[step.target], required)
        for host in (step.source, step.target):
            self._room[host] = tuple(fit.free(hosts[host]).values())

    def best(self) -> Step | None:
        """Return the best step there is now, None if none is worth it."""
        shares = self._loads.shares
        order = sorted(shares, key=lambda host: (-shares[host], host))
        givers = (host for host in order if self._movable(host))
        while some := list(islice(givers, _GIVERS)):
            for count in (_TAKERS, None):
                steps = [step for host in some for step in self._steps(host, order[::-1], count)]
                # What a host says takes longer to look at than all gains together.
                for step in sorted(steps, key=lambda step: (-step.gain, step.name, step.target)):
                    if self._is_taken(step):
                        return step
        return None

    def _movable(self, host: str) -> list[str]:
        there = self._hosts[host].vms
        return [name for name in self._loads.vms[host] if name in self._needs and name in there]

    def _steps(self, source: str, coolest: Sequence[str], count: int | None) -> Iterator[Step]:
        """Yield the steps from a host that are worth it, to so many of the least loaded."""
        shares, (least, _most) = self._loads.shares, self._loads.surely(source)
        reach = [
            host
            for host in coolest
            if shares[source] - shares[host] > self._threshold
            and least > self._loads.surely(host)[1]
        ]
        of_make: dict[Requirements, list[str]] = {}
        for name in sorted(self._movable(source)) if reach else ():
            make = self._make(name)
            if make not in of_make:
                able = (host for host in reach if self._may_take(host, make))
                of_make[make] = list(islice(able, count))
            for target in of_make[make]:
                if target not in self._refused.get(name, ()) and self._has_room(target, name):
                    yield from self._step(name, source, target)

    def _make(self, name: str) -> Requirements:
        """Return what of a VM's needs does not differ for VMs of one make."""
        if name not in self._makes:
            self._makes[name] = replace(
                self._needs[name],
                name="",
                vcpus=0,
                memory_mib=0,
                disk_mib=0,
                affinity=(),
                anti_affinity=(),
            )
        return self._makes[name]

    def _may_take(self, host: str, make: Requirements) -> bool:
        key = (host, make)
        if key not in self._standing:
            self._standing[key] = not fit.standing(self._hosts[host], make)
        return self._standing[key]

    def _has_room(self, host: str, name: str) -> bool:
        vcpus, memory_mib, disk_mib = self._room[host]
        required = self._needs[name]
        return (
            required.vcpus <= vcpus
            and required.memory_mib <= memory_mib
            and required.disk_mib <= disk_mib
        )

    def _step(self, name: str, source: str, target: str) -> Iterator[Step]:
        """Yield the step if it is worth it."""
        shares = self._loads.shares
        changes = self._loads.after(name, source, target)
        (_source, less), (_target, more) = changes
        # By how much closer the two come, whatever the size of the cloud.
        gain = shares[source] - shares[target] - abs(less - more)
        gain -= COST_PER_GIB * self._needs[name].memory_mib / 1024
        if gain > self._threshold and self._loads.spread(changes) < self._loads.spread():
            yield Step(name=name, source=source, target=target, gain=gain)

    def _is_taken(self, step: Step) -> bool:
        """Return whether virt.migrate would take a step, and it leaves no group in parts."""
        required = self._needs[step.name]
        is_apart = any(
            step.source in self._spots.hosts(group, required.name) for group in required.affinity
        )
        return not (
            is_apart
            or fit.reasons(self._hosts[step.target], required)
            or any(self._spots.why_apart(required, step.target))
        )


def _settled(hosts: Mapping[str, HostInfo]) -> set[str]:
    """Return the names of the VMs that are on one host and on their way to none."""
    seen = Counter(name for info in hosts.values() for name in {*info.vms, *info.building})
    coming = {name for info in hosts.values() for name in info.building}
    return {name for name, count in seen.items() if count == 1} - coming
