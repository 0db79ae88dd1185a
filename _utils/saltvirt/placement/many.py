"""One plan for many new VMs, in which each choice counts for the next one."""

import math
import operator
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from saltvirt.core.errors import BadArgument
from saltvirt.core.model import Policy, Requirements
from saltvirt.placement import fit, score
from saltvirt.placement.answers import HostInfo
from saltvirt.placement.choose import Board

# The step in which the likeness of a VM's needs and the room left is measured.
_STEP = 0.02
# With more sizes than these, sizes that are nearly the same count as one.
_SIZES = 64
_Vector = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """
    The hosts of VMs.

    hosts
        ``{name: host}``, in the order of choice.
    unplaced
        ``{name: {host: reason}}`` of those that find no place.
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
        The needs of each; a name twice is refused, and a VM that a host has finds no place.
    hosts
        ``{host: answer of virt.host_info}``; the VMs of a missing host count for no group, and its
        room for no headroom.
    weights, policy
        As for ``choose.evaluate``.
    among
        The hosts that may be chosen. Defaults to all.
    all_or_nothing
        Whether to place none if one of them finds no place. Defaults to False.

    Each VM goes to the host that ``choose.evaluate`` puts first after the earlier VMs are placed.
    """
    policy = policy or Policy()
    open_hosts = _open_hosts(hosts, among)
    ordered_requests = order(requests, open_hosts, weights, policy)
    hosts_by_vm = {name: host for host, info in hosts.items() for name in _names(info)}
    board, out = Board(hosts, weights, policy, open_hosts), dict[str, str]()
    unplaced_requests = []
    for required in ordered_requests:
        host = None if required.name in hosts_by_vm else board.best(required)
        if host is None:
            unplaced_requests.append(required)
            continue
        board.put(required, host)
        out[required.name] = host
    if not unplaced_requests:
        return Plan(hosts=out)
    unplaced = _unplaced(unplaced_requests, board, hosts, hosts_by_vm)
    if all_or_nothing:
        names = ", ".join(sorted(unplaced)[:3]) + (" and more" if len(unplaced) > 3 else "")
        nothing = {host: f"all or nothing: no place for {names}" for host in hosts}
        return Plan(unplaced={**unplaced, **dict.fromkeys(out, nothing)})
    return Plan(hosts=out, unplaced=unplaced)


def _open_hosts(
    hosts: Mapping[str, HostInfo], among: Collection[str] | None
) -> Mapping[str, HostInfo]:
    return hosts if among is None else {host: hosts[host] for host in hosts if host in among}


def _names(info: HostInfo) -> list[str]:
    return [*info.kept, *info.vms, *info.building, *info.coming]


def _unplaced(
    unplaced_requests: Iterable[Requirements],
    board: Board,
    hosts: Collection[str],
    hosts_by_vm: Mapping[str, str],
) -> dict[str, dict[str, str]]:
    """Return ``{name: {host: reason}}``, computed once for all VMs with equal needs."""
    reasons_by_need: dict[Requirements, dict[str, str]] = {}
    out = {}
    for required in unplaced_requests:
        if required.name in hosts_by_vm:
            reason = (
                f"VM {required.name!r} is on {hosts_by_vm[required.name]} already, or on its "
                "way there"
            )
            out[required.name] = dict.fromkeys(hosts, reason)
            continue
        need = replace(required, name="")
        if need not in reasons_by_need:
            reasons_by_need[need] = {
                evaluation.host: "; ".join(evaluation.reasons)
                for evaluation in board.evaluate(need)
            }
        out[required.name] = reasons_by_need[need]
    return out


def order(
    requests: Iterable[Requirements],
    hosts: Mapping[str, HostInfo],
    weights: Mapping[str, float] | None = None,
    policy: Policy | None = None,
) -> list[Requirements]:
    """
    Return requests in the order in which they choose; the given order has no influence.

    The largest come first. For packing, they come as one host after the other is filled without a
    rest: next is always the one most like the room left, so that neither CPUs nor memory remain
    without the other.
    """
    sorted_requests = sorted(requests, key=lambda required: required.name)
    for request, next_request in zip(sorted_requests, sorted_requests[1:], strict=False):
        if request.name == next_request.name:
            raise BadArgument("requests", f"{request.name!r} is asked for twice")
    room = _usual(hosts)
    factors = score.ordered_weights(weights)

    def largest_first(required: Requirements) -> tuple[float, str]:
        return -sum(map(operator.mul, factors, _parts(required, room))), required.name

    sorted_requests.sort(key=largest_first)
    return (
        _fill_order(sorted_requests, room) if policy and policy.packs and room else sorted_requests
    )


def _usual(hosts: Mapping[str, HostInfo]) -> _Vector:
    """Return the average limits of the hosts."""
    limits = [tuple(fit.limits(info).values()) for info in hosts.values() if not info.maintenance]
    return tuple(max(1.0, sum(amounts) / len(limits)) for amounts in zip(*limits, strict=True))


def _parts(required: Requirements, room: _Vector) -> _Vector:
    need = (required.vcpus, required.memory_mib, required.disk_mib)
    return tuple(map(operator.truediv, need, room))


def _fill_order(requests: Sequence[Requirements], room: _Vector) -> list[Requirements]:
    """Return the requests in the order in which they fill hosts of this room in turn."""
    requests_by_size, empty_room = _by_size(requests, room), [1.0] * len(room)
    needed_amounts = [
        sum(amounts)
        for amounts in zip(*(_parts(request, room) for request in requests), strict=True)
    ]
    out: list[Requirements] = []
    room_left = empty_room
    while requests_by_size:
        fitting_sizes = [
            size for size in requests_by_size if all(map(operator.le, size, room_left))
        ]
        if not fitting_sizes and room_left != empty_room:
            room_left = empty_room
            continue
        best = _most_alike(fitting_sizes or list(requests_by_size), room_left, needed_amounts)
        required = requests_by_size[best].pop(0)
        if not requests_by_size[best]:
            del requests_by_size[best]
        out.append(required)
        parts = _parts(required, room)
        room_left = list(map(operator.sub, room_left, parts))
        needed_amounts = [max(0.0, amount) for amount in map(operator.sub, needed_amounts, parts)]
    return out


def _most_alike(
    sizes: Sequence[_Vector], room_left: Sequence[float], needed_amounts: Sequence[float]
) -> _Vector:
    # A dimension that all need little of has little weight.
    most = max(needed_amounts)
    weights = (
        [amount / most for amount in needed_amounts] if most > 0 else [1.0] * len(needed_amounts)
    )
    return min(sizes, key=lambda size: (_unlikeness(size, room_left, weights), size))


def _by_size(requests: Sequence[Requirements], room: _Vector) -> dict[_Vector, list[Requirements]]:
    sizes = Counter(_parts(request, room) for request in requests)
    is_fine = len(sizes) <= _SIZES
    out: dict[_Vector, list[Requirements]] = {}
    for request in requests:
        parts = _parts(request, room)
        out.setdefault(parts if is_fine else tuple(map(_rounded, parts)), []).append(request)
    return out


def _rounded(part: float) -> float:
    """Return a part, rounded up to a power of two."""
    return 2.0 ** math.ceil(math.log2(part)) if part > 0 else 0.0


def _unlikeness(
    size: _Vector, room_left: Sequence[float], weights: Sequence[float]
) -> tuple[int, float]:
    """Return how unlike in proportion a VM's size and the room left are; small sizes last."""
    product = sum(w * a * b for w, a, b in zip(weights, size, room_left, strict=True))
    size_norm, room_norm = (
        math.sqrt(sum(w * a * a for w, a in zip(weights, vector, strict=True)))
        for vector in (size, room_left)
    )
    likeness = product / (size_norm * room_norm) if size_norm and room_norm else 0.0
    return -round(likeness / _STEP), -sum(map(operator.mul, weights, size))
