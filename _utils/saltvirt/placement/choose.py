"""
Choose a host: evaluate all hosts for a VM, name the best, and remedies if none fits.

Hosts are kept in the order of what is left on them. A VM's share of that differs little between
hosts, so the best host is among the first that fit, and :meth:`Board.best` ends where no later host
can be better. :meth:`Board.evaluate` has the reasons against each host, and the same scores.
"""

import bisect
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from saltvirt.core.errors import NoHostFits
from saltvirt.core.model import Evaluation, Policy, Requirements
from saltvirt.placement import cures, fit, groups, headroom, score, whatif
from saltvirt.placement.answers import HostInfo

USUAL = Policy()
# More than the error of floats.
_EPSILON = 1e-9
_Vector = tuple[int, ...]
# For one rack, or for all: what is left of each host, as a score, and its name, the best first.
_Order = list[tuple[float, str]]


class Board:
    """The hosts with the VMs that were put on them."""

    def __init__(
        self,
        hosts: Mapping[str, HostInfo],
        weights: Mapping[str, float] | None = None,
        policy: Policy | None = None,
        among: Collection[str] | None = None,
    ) -> None:
        """
        Take in ``{host: answer of virt.host_info}``, the weights of scores, and the policy.

        among
            The hosts that VMs may be put on. Defaults to all.
        """
        self._hosts, self._policy = dict(hosts), policy or USUAL
        self._among = hosts.keys() if among is None else among
        self._weights = score.ordered_weights(weights)
        self._left = _vectors(hosts, fit.free)
        self._limits = _vectors(hosts, fit.limits)
        self._stocks = {name: fit.stocks_left(info) for name, info in hosts.items()}
        self._spots = groups.Spots(hosts)
        self._dying = headroom.Headroom(hosts) if self._policy.headroom else None
        self._able: dict[Requirements, dict[str, int]] = {}
        self._crowds = _Crowds(hosts, self._policy.spread_over)
        self._named, self._apart = _named(hosts), _apart(hosts)
        self._orders: dict[groups.Place, _Order] = {}
        for entry in sorted(map(self._entry, hosts)):
            self._orders.setdefault(self._crowds.place(entry[1]), []).append(entry)
        dims = range(len(fit.DIMENSIONS))
        limits = [
            [vector[n] for vector in self._limits.values() if vector[n] > 0] or [1] for n in dims
        ]
        self._least, self._most = list(map(min, limits)), list(map(max, limits))

    def evaluate(self, required: Requirements) -> list[Evaluation]:
        """Return the evaluation of every host for a VM, the best first; equal ones by name."""
        return rank(self._evaluation(required, name) for name in self._hosts)

    def _evaluation(self, required: Requirements, host: str) -> Evaluation:
        info = self._hosts[host]
        reasons = [*fit.reasons(info, required), *self._spots.why_apart(required, host)]
        if self._dying and not reasons:
            reasons += filter(None, [self._dying.why_not(required, host)])
        room_left = tuple(map(operator.sub, self._left[host], fit.needed(info, required)))
        points = self._points(room_left, self._limits[host]) if not reasons else 0.0
        crowd = self._crowds.describe(required, host, info.tags)
        return Evaluation(host=host, reasons=tuple(reasons), score=points, **crowd)

    def best(self, required: Requirements) -> str | None:
        """Return the host that :meth:`evaluate` puts first; None if no host fits."""
        for places in self._crowds.fewest_first(required, self._orders):
            best_entry: tuple[float, str] | None = None
            for place in places:
                best_entry = self._best_of(self._orders[place], required, best_entry)
            if best_entry is not None:
                return best_entry[1]
        return None

    def put(self, required: Requirements, host: str) -> None:
        """Count a VM on a host."""
        order = self._orders[self._crowds.place(host)]
        del order[bisect.bisect_left(order, self._entry(host))]
        need = fit.needed(self._hosts[host], required)
        self._hosts[host] = whatif.with_vm(self._hosts[host], required)
        self._left[host] = tuple(map(operator.sub, self._left[host], need))
        bisect.insort(order, self._entry(host))
        for name, need_mib in required.stocks:
            self._stocks[host][name] = self._stocks[host].get(name, 0) - need_mib
        self._spots.add(required, host)
        self._crowds.add(required.name, required.anti_affinity, host)
        self._named.setdefault(required.name, set()).add(host)
        for group in required.anti_affinity:
            self._apart.setdefault(group, {}).setdefault(host, set()).add(required.name)
        if self._dying:
            self._dying.put(required, host)

    def _entry(self, host: str) -> tuple[float, str]:
        share_left = score.share_left(self._left[host], self._limits[host], self._weights)
        return (share_left if self._policy.packs else -share_left), host

    def _points(self, room_left: _Vector, limits: _Vector) -> float:
        share_left = score.share_left(room_left, limits, self._weights)
        return 1.0 - share_left if self._policy.packs else share_left

    def _best_of(
        self, order: _Order, required: Requirements, best_entry: tuple[float, str] | None
    ) -> tuple[float, str] | None:
        """Return the best host of an order as ``(-score, name)``, or the best one so far."""
        most_taken, packs = self._most_taken(required), self._policy.packs
        seen_vectors: set[tuple[_Vector, _Vector]] = set()
        for bound, host, room_left in self._with_room(order, required):
            # No later host is better than what is left there, less the most that the VM can take of
            # it.
            if (
                best_entry is not None
                and (bound - 1 if packs else bound) - most_taken > best_entry[0] + _EPSILON
            ):
                break
            limits = self._limits[host]
            if (room_left, limits) in seen_vectors:
                continue
            host_entry = (-self._points(room_left, limits), host)
            if (best_entry is None or host_entry < best_entry) and self._may_have(host, required):
                # Hosts with equal values come later, by their names.
                seen_vectors.add((room_left, limits))
                best_entry = host_entry
        return best_entry

    def _with_room(
        self, order: _Order, required: Requirements
    ) -> Iterator[tuple[float, str, _Vector]]:
        """Yield ``(score of what is left, host, room after the VM)`` of the hosts with room."""
        able, barred = self._able_hosts(required), self._barred(required)
        vcpus, memory_mib, disk_mib = required.vcpus, required.memory_mib, required.disk_mib
        for bound, host in order:
            room = self._left[host]
            if vcpus > room[0] or memory_mib > room[1] or host not in able or host in barred:
                continue
            disk_left = room[2] - max(disk_mib, able[host])
            if disk_left >= 0:
                yield bound, host, (room[0] - vcpus, room[1] - memory_mib, disk_left)

    def _may_have(self, host: str, required: Requirements) -> bool:
        """Return whether groups, stocks and headroom allow a VM on a host."""
        stocks = self._stocks[host]
        if self._hosts[host].stocks is not None and not all(
            stocks.get(name, -1) >= need_mib for name, need_mib in required.stocks
        ):
            return False
        is_apart = any(self._spots.why_apart(required, host))
        return not (is_apart or (self._dying and self._dying.why_not(required, host)))

    def _most_taken(self, required: Requirements) -> float:
        """Return the most by which a VM's score can be better than that of what is left."""
        if not self._policy.packs:
            # The VM lowers the score by its share, which is smallest on the largest host.
            need = (required.vcpus, required.memory_mib, required.disk_mib)
            return -score.share_left(need, self._most, self._weights)
        disk_mib = max((required.disk_mib, *self._able_hosts(required).values()))
        need = (required.vcpus, required.memory_mib, disk_mib)
        return score.share_left(need, self._least, self._weights)

    def _able_hosts(self, required: Requirements) -> dict[str, int]:
        """Return ``{host: disk by the VM's profile}`` of the hosts that fit, apart from room."""
        make = replace(
            required,
            name="",
            vcpus=0,
            memory_mib=0,
            disk_mib=0,
            affinity=(),
            anti_affinity=(),
            stocks=(),
        )
        if make not in self._able:
            self._able[make] = {
                name: fit.disk_mib(host, make)
                for name, host in self._hosts.items()
                if name in self._among and not fit.standing_reasons(host, make)
            }
        return self._able[make]

    def _barred(self, required: Requirements) -> set[str]:
        """Return the hosts that have the VM's name, or other VMs of its anti-affinity groups."""
        out = set(self._named.get(required.name, ()))
        for group in required.anti_affinity:
            names_by_host = self._apart.get(group, {})
            out.update(host for host, names in names_by_host.items() if names - {required.name})
        return out


def _vectors(
    hosts: Mapping[str, HostInfo], measure: Callable[[HostInfo], dict[str, int]]
) -> dict[str, _Vector]:
    return {name: tuple(measure(info).values()) for name, info in hosts.items()}


class _Crowds:
    """The number of VMs in each rack: of each anti-affinity group, and of all."""

    def __init__(self, hosts: Mapping[str, HostInfo], tag: str | None) -> None:
        self._tag = tag
        self._places = {
            name: groups.place(name, info.tags, tag) if tag else ("", "")
            for name, info in hosts.items()
        }
        self._names: dict[str | None, dict[groups.Place, set[str]]] = {}
        if tag:
            for host, info in hosts.items():
                for name, vm in groups.members(info).items():
                    self.add(name, vm.anti_affinity, host)

    def place(self, host: str) -> groups.Place:
        """Return the rack of a host."""
        return self._places[host]

    def add(self, name: str, apart: Sequence[str], host: str) -> None:
        """Count one more VM."""
        if self._tag:
            for group in (None, *apart):
                names_by_place = self._names.setdefault(group, {})
                names_by_place.setdefault(self._places[host], set()).add(name)

    def fewest_first(
        self, required: Requirements, places: Collection[groups.Place]
    ) -> Iterator[list[groups.Place]]:
        """Yield lists of racks with equally many VMs that count against this one, fewest first."""
        if not self._tag:
            yield list(places)
            return
        by_count: dict[int, list[groups.Place]] = {}
        for place in places:
            by_count.setdefault(self._count(required, place), []).append(place)
        for _count, equal_places in sorted(by_count.items()):
            yield equal_places

    def describe(
        self, required: Requirements, host: str, tags: Mapping[str, str]
    ) -> dict[str, Any]:
        """Return ``crowd`` and ``note`` of a host's evaluation; empty without a tag."""
        if not self._tag:
            return {}
        count = self._count(required, self._places[host])
        value = tags.get(self._tag)
        where = f"it, which has no tag {self._tag}" if value is None else f"{self._tag} {value}"
        qualifier = "of its groups " if required.anti_affinity else ""
        return {"crowd": count, "note": f"{count} VM{'s' * (count != 1)} {qualifier}in {where}"}

    def _count(self, required: Requirements, place: groups.Place) -> int:
        """Return how many VMs of a rack count against a VM."""
        group_names = (self._names.get(group, {}) for group in required.anti_affinity or (None,))
        vm_names = set().union(*(names.get(place, ()) for names in group_names))
        return len(vm_names - {required.name})


def _named(hosts: Mapping[str, HostInfo]) -> dict[str, set[str]]:
    out: dict[str, set[str]] = {}
    for host, info in hosts.items():
        for name in {*info.kept, *info.vms, *info.building}:
            out.setdefault(name, set()).add(host)
    return out


def _apart(hosts: Mapping[str, HostInfo]) -> dict[str, dict[str, set[str]]]:
    out: dict[str, dict[str, set[str]]] = {}
    for host, info in hosts.items():
        for name, vm in groups.members(info).items():
            for group in vm.anti_affinity:
                out.setdefault(group, {}).setdefault(host, set()).add(name)
    return out


def evaluate(
    hosts: Mapping[str, HostInfo],
    required: Requirements,
    weights: Mapping[str, float] | None = None,
    policy: Policy = USUAL,
) -> list[Evaluation]:
    """
    Return the evaluation of every host, the best first; equal ones by name.

    hosts
        ``{host: answer of virt.host_info}``.
    weights
        Weights that differ from the defaults in ``fit.DIMENSIONS``, by the keys of
        ``virt:weights``.
    policy
        Whether to spread or to pack. Defaults to spreading over the hosts.
    """
    return Board(hosts, weights, policy).evaluate(required)


def rank(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    return sorted(evaluations, key=lambda v: (not v.fits, v.crowd, -v.score, v.host))


def apply_refusals(
    evaluations: Iterable[Evaluation], late_reasons: Mapping[str, Iterable[str]]
) -> list[Evaluation]:
    """
    Return the evaluations, the best first, after the hosts' own refusals.

    late_reasons
        ``{host: reasons}`` of the hosts that refused.
    """
    refusals = {
        host: Evaluation(host=host, reasons=tuple(reasons))
        for host, reasons in late_reasons.items()
    }
    return rank([refusals.get(v.host, v) if v.fits else v for v in evaluations])


def choose(
    hosts: Mapping[str, HostInfo],
    required: Requirements,
    weights: Mapping[str, float] | None = None,
    policy: Policy = USUAL,
) -> list[Evaluation]:
    """Return the evaluations of the hosts that fit, the best first, or raise NoHostFits."""
    evaluations = evaluate(hosts, required, weights, policy)
    fitting = [evaluation for evaluation in evaluations if evaluation.fits]
    if not fitting:
        raise no_host_fits(required, evaluations)
    return fitting


def no_host_fits(
    required: Requirements, evaluations: Sequence[Evaluation], command: str = cures.INIT
) -> NoHostFits:
    """Return the error with every host's reasons why a VM cannot be there, and the remedies."""
    reasons = (reason for evaluation in evaluations for reason in evaluation.reasons)
    helps = cures.format_cures(reasons, command, required.name or "NAME")
    return NoHostFits(required, {v.host: "; ".join(v.reasons) for v in evaluations}, helps)
