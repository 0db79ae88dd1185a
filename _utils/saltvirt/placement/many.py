"""Where many new VMs go: one plan, in which each choice counts for the next one."""

import math
import operator
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from saltvirt.errors import BadArgument
from saltvirt.model import Policy, Requirements
from saltvirt.placement import choose, fit, score, whatif
from saltvirt.placement.answers import HostInfo
from saltvirt.placement.board import Board

# How alike what a VM takes and what is left must be, to count as equally alike.
_STEP = 0.02
# Of more sizes than these, those that are nearly the same count as one.
_SIZES = 64
_Vector = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    Where VMs go.

    hosts
        ``{name: host}``, in the order in which they were chosen.
    unplaced
        ``{name: {host: why not}}`` of those that find no place.
    """

    hosts: dict[str, str] = field(default_factory=dict)
    unplaced: dict[str, dict[str, str]] = field(default_factory=dict)


def plan_many(
    requests: Iterable[Requirements],
    hosts: Mapping[str, HostInfo],
    *,
    weights: Mapping[str, float] | None = None,
    policy: Policy | None = None,
    among: Collection[str] | None = None,
    all_or_nothing: bool = False,
) -> Plan:
    """
    Return the :class:`Plan` of many new VMs; it is the same for the same requests in any order.

    requests
        What each of them needs; a name twice is refused, one that a host has finds no place.
    hosts
        ``{host: answer of virt.host_info}``; where one is left out its VMs count for no group, and
        its room for no headroom.
    weights, policy
        As of ``choose.evaluate``.
    among
        The hosts that may be chosen. Defaults to all.
    all_or_nothing
        Place none if one of them finds no place. Defaults to False.

    Each goes to the host that ``choose.choose`` puts first when those before it are there.
    """
    policy = policy or Policy()
    open_ = _open(hosts, among)
    ordered = order(requests, open_, weights, policy)
    known = {name: host for host, info in hosts.items() for name in _names(info)}
    board, out = Board(hosts, weights, policy, open_), dict[str, str]()
    left = []
    for required in ordered:
        host = None if required.name in known else board.best(required)
        if host is None:
            left.append(required)
            continue
        board.put(required, host)
        out[required.name] = host
    if not left:
        return Plan(hosts=out)
    unplaced = _unplaced(left, _with(hosts, ordered, out), known, policy)
    if all_or_nothing:
        names = ", ".join(sorted(unplaced)[:3]) + (" and more" if len(unplaced) > 3 else "")
        nothing = {host: f"all or nothing: no place for {names}" for host in hosts}
        return Plan(unplaced={**unplaced, **dict.fromkeys(out, nothing)})
    return Plan(hosts=out, unplaced=unplaced)


def _open(hosts: Mapping[str, HostInfo], among: Collection[str] | None) -> Mapping[str, HostInfo]:
    return hosts if among is None else {host: hosts[host] for host in hosts if host in among}


def _names(info: HostInfo) -> list[str]:
    return [*info.kept, *info.vms, *info.building, *info.coming]


def _with(
    hosts: Mapping[str, HostInfo], ordered: Iterable[Requirements], out: Mapping[str, str]
) -> dict[str, HostInfo]:
    """Return what the hosts would say when all that has a place is there."""
    after = dict(hosts)
    for required in ordered:
        if (host := out.get(required.name)) is not None:
            after[host] = whatif.with_vm(after[host], required)
    return after


def _unplaced(
    left: Iterable[Requirements],
    after: Mapping[str, HostInfo],
    known: Mapping[str, str],
    policy: Policy,
) -> dict[str, dict[str, str]]:
    """Return ``{name: {host: why not}}``: once for all that need the same."""
    said: dict[Requirements, dict[str, str]] = {}
    out = {}
    for required in left:
        if required.name in known:
            why = f"VM {required.name!r} is on {known[required.name]} already, or on its way there"
            out[required.name] = dict.fromkeys(after, why)
            continue
        alike = replace(required, name="")
        if alike not in said:
            evaluated = choose.evaluate(after, alike, policy=policy)
            said[alike] = {one.host: "; ".join(one.reasons) for one in evaluated}
        out[required.name] = said[alike]
    return out


def order(
    requests: Iterable[Requirements],
    hosts: Mapping[str, HostInfo],
    weights: Mapping[str, float] | None = None,
    policy: Policy | None = None,
) -> list[Requirements]:
    """
    Return requests in the order in which they choose, whatever the order in which they came.

    The largest come first. Where hosts are packed, they come as one host after the other is filled
    without a rest: each time the one that is most like what is left, so that neither CPUs nor
    memory remain that the other lacks.
    """
    listed = sorted(requests, key=lambda required: required.name)
    for one, after in zip(listed, listed[1:], strict=False):
        if one.name == after.name:
            raise BadArgument("requests", f"{one.name!r} is asked for twice")
    room = _usual(hosts)
    factors = score.weighed(weights)

    def largest_first(required: Requirements) -> tuple[float, str]:
        return -sum(map(operator.mul, factors, _parts(required, room))), required.name

    listed.sort(key=largest_first)
    return _filling(listed, room) if policy and policy.packs and room else listed


def _usual(hosts: Mapping[str, HostInfo]) -> _Vector:
    """Return what a host has to give, on average."""
    limits = [tuple(fit.limits(info).values()) for info in hosts.values() if not info.maintenance]
    return tuple(max(1.0, sum(each) / len(limits)) for each in zip(*limits, strict=True))


def _parts(required: Requirements, room: _Vector) -> _Vector:
    need = (required.vcpus, required.memory_mib, required.disk_mib)
    return tuple(map(operator.truediv, need, room))


def _filling(listed: Sequence[Requirements], room: _Vector) -> list[Requirements]:
    """Return the requests as hosts of this room are filled with them, one after the other."""
    waiting, empty = _by_size(listed, room), [1.0] * len(room)
    needed = [sum(each) for each in zip(*(_parts(one, room) for one in listed), strict=True)]
    out: list[Requirements] = []
    left = empty
    while waiting:
        fitting = [size for size in waiting if all(map(operator.le, size, left))]
        if not fitting and left != empty:
            left = empty
            continue
        best = _most_alike(fitting or list(waiting), left, needed)
        required = waiting[best].pop(0)
        if not waiting[best]:
            del waiting[best]
        out.append(required)
        parts = _parts(required, room)
        left = list(map(operator.sub, left, parts))
        needed = [max(0.0, each) for each in map(operator.sub, needed, parts)]
    return out


def _most_alike(
    sizes: Sequence[_Vector], left: Sequence[float], needed: Sequence[float]
) -> _Vector:
    # What all need little of does not decide.
    most = max(needed)
    matters = [each / most for each in needed] if most > 0 else [1.0] * len(needed)
    return min(sizes, key=lambda size: (_unlike(size, left, matters), size))


def _by_size(listed: Sequence[Requirements], room: _Vector) -> dict[_Vector, list[Requirements]]:
    sizes = Counter(_parts(one, room) for one in listed)
    is_fine = len(sizes) <= _SIZES
    out: dict[_Vector, list[Requirements]] = {}
    for one in listed:
        parts = _parts(one, room)
        out.setdefault(parts if is_fine else tuple(map(_rounded, parts)), []).append(one)
    return out


def _rounded(part: float) -> float:
    """Return a part, rounded up to a power of two."""
    return 2.0 ** math.ceil(math.log2(part)) if part > 0 else 0.0


def _unlike(size: _Vector, left: Sequence[float], matters: Sequence[float]) -> tuple[int, float]:
    """Return how unlike in proportion what a VM takes and what is left are; small ones last."""
    both = sum(w * a * b for w, a, b in zip(matters, size, left, strict=True))
    one, other = (
        math.sqrt(sum(w * a * a for w, a in zip(matters, vector, strict=True)))
        for vector in (size, left)
    )
    alike = both / (one * other) if one and other else 0.0
    return -round(alike / _STEP), -sum(map(operator.mul, matters, size))
