"""Random tight clouds for the planners, and an exact solver that says what can be done."""

import json
import operator
from dataclasses import replace
from pathlib import Path

import told
from saltvirt.placement import choose, fit, whatif

FLEETS = Path(__file__).resolve().parent / "fleets"
_THREE = json.loads((FLEETS / "three.json").read_text())
_EMPTY = {"vms": {}, "building": [], "maintenance": False}
PATTERN = told.info({**next(iter(_THREE.values())), **_EMPTY})
AFFINE, APART = "ab", "xy"


def host(memory_mib, vcpus=1000, disk_mib=10**7, **given):
    """Return an empty host with this much of everything."""
    return told.but(
        PATTERN,
        memory={"limit_mib": memory_mib, "committed_mib": 0},
        cpu={"vcpus_limit": vcpus, "vcpus_committed": 0},
        storage={"limit_mib": disk_mib, "committed_mib": 0},
        **given,
    )


def moving(name, memory_mib, **given):
    """Return what a host says of a VM that moves."""
    usual = {"images": "/srv", "machine": "pc"}
    return told.moving(name=name, memory_mib=memory_mib, **{**usual, **given})


def _groups(draw, affine=AFFINE):
    given = {}
    if draw.random() < 0.35:
        given["affinity"] = [draw.choice(affine)]
    if draw.random() < 0.3:
        given["anti_affinity"] = [draw.choice(APART)]
    return given


def _vm(draw, name, groups=_groups):
    size = draw.choice([4, 8, 12, 16, 24, 32])
    disk = {"how": "copy", "virtual_bytes": draw.choice([1, 2, 4, 8]) * 2**30}
    return moving(name, size, vcpus=draw.choice([1, 2, 4]), disks=[disk], **groups(draw))


def tight(draw, most_hosts=6, most_vms=14):
    """
    Return ``(hosts, vms)`` of a cloud with hardly more room than the VMs of a host need.

    Hosts have VMs of groups already, some await one; a VM has up to one group of each kind. What is
    scarce is memory, in every third cloud CPUs or disk instead.
    """
    vms = [_vm(draw, f"v{n}") for n in range(draw.randint(2, most_vms))]
    hosts = _hosts(draw, most_hosts)

    def shares(_key):
        return [draw.choice([2, 3, 4]) for _ in hosts]

    _make_tight(draw, hosts, [whatif.needs_of_move(vm) for vm in vms], shares)
    return hosts, {vm.name: vm for vm in vms}


def grouped(draw, most_hosts=6, most_together=14, most_others=10):
    """
    Return ``(hosts, vms)`` of a cloud that is tighter, and has an affinity group of up to 14 VMs.

    Each host has what it needs for VMs that were thrown on it, groups as a whole, and a bit more.
    """
    others = [
        _vm(draw, f"v{n}", lambda draw: _groups(draw, AFFINE[1:]))
        for n in range(draw.randint(0, most_others))
    ]
    group = [
        _vm(draw, f"g{n}", lambda _draw: {"affinity": [AFFINE[0]]})
        for n in range(draw.randint(2, most_together))
    ]
    hosts, needs = (
        _hosts(draw, most_hosts),
        [whatif.needs_of_move(vm) for vm in (*group, *others)],
    )
    thrown = {}
    for required in needs:
        thrown.setdefault((required.affinity or (required.name,))[0], draw.randrange(len(hosts)))

    def shares(key):
        out = [0.01] * len(hosts)
        for required in needs:
            at = thrown[(required.affinity or (required.name,))[0]]
            out[at] += getattr(required, key)
        return out

    _make_tight(draw, hosts, needs, shares, slack=1.1)
    return hosts, {vm.name: vm for vm in (*group, *others)}


def _hosts(draw, most):
    hosts = {f"h{n}": host(0) for n in range(draw.randint(2, most))}
    for number, name in enumerate(hosts):
        if draw.random() < 0.15:
            where = "coming" if draw.random() < 0.5 else "vms"
            hosts[name] = told.but(hosts[name], **{where: {f"o{number}": _groups(draw)}})
    return hosts


def _make_tight(draw, hosts, needs, shares_of, slack=1.5):
    """Limit what the hosts have to hardly more than the VMs need."""
    dims = {"memory_mib": ("memory", "limit_mib"), "vcpus": ("cpu", "vcpus_limit")}
    dims["disk_mib"] = ("storage", "limit_mib")
    scarce = draw.choice(["memory_mib", "memory_mib", "vcpus", "disk_mib"])
    for key, (part, limit) in dims.items():
        plenty = 1.0 if key == scarce else 1.5
        total = sum(getattr(one, key) for one in needs) * draw.uniform(1.0, slack) * plenty
        shares = shares_of(key)
        for name, share in zip(list(hosts), shares, strict=True):
            most = {limit: round(total * share / sum(shares))}
            limited = replace(getattr(hosts[name], part), **most)
            hosts[name] = replace(hosts[name], **{part: limited})


def _bits(groups):
    return sum(1 << "abxy".index(group) for group in set(groups))


class Exact:
    """Whether all VMs can be placed: every way is tried, what has failed is not tried again."""

    def __init__(self, hosts, vms):
        rooms = [tuple(fit.free(one).values()) for one in hosts.values()]
        there = [max(1, sum(room)) for room in zip(*rooms, strict=True)]
        vms = sorted(
            ((n.vcpus, n.memory_mib, n.disk_mib), _bits(n.affinity), _bits(n.anti_affinity))
            for n in map(whatif.needs_of_move, vms.values())
        )
        # The hardest first, in two ways: what takes one for ever is mostly soon done by the other.
        self._orders = [
            sorted(vms, key=lambda vm: -vm[0][1]),
            sorted(vms, key=lambda vm: -max(map(operator.truediv, vm[0], there))),
        ]
        seen = [{**one.coming, **one.vms}.values() for one in hosts.values()]
        here = [_bits(g for vm in vms for g in vm.affinity) for vms in seen]
        apart = [_bits(g for vm in vms for g in vm.anti_affinity) for vms in seen]
        self._begin = tuple(zip(rooms, here, apart, strict=True))

    def feasible(self):
        """Return True or False, None if that took too long."""
        tries = [(vms, most) for most in (20_000, 400_000) for vms in self._orders]
        found = (self._searched(vms, most) for vms, most in tries)
        return next((one for one in found if one is not None), None)

    def _searched(self, vms, most):
        sizes = [size for size, _mine, _apart in vms]
        rest = [list(zip(*sizes[n:], strict=True)) for n in range(len(sizes))]
        self._needed = [tuple(map(sum, each)) for each in rest]
        self._least = [tuple(map(min, each)) for each in rest]
        self._vms, self._failed, self._left = vms, set(), most
        try:
            return self._placed(0, self._begin)
        except OverflowError:
            return None

    def _placed(self, number, state):
        if number == len(self._vms):
            return True
        key = (number, tuple(sorted(state)))
        if key in self._failed or not self._has_room(number, state):
            return False
        self._left -= 1
        if self._left < 0:
            raise OverflowError
        if any(self._placed(number + 1, after) for after in self._ways(number, state)):
            return True
        self._failed.add(key)
        return False

    def _has_room(self, number, state):
        """Return whether the hosts that still hold anything have room enough in all."""
        least = self._least[number]
        usable = [room for room, _here, _apart in state if all(map(operator.ge, room, least))]
        have = map(sum, zip(*usable, strict=True)) if usable else [0] * len(least)
        return all(map(operator.le, self._needed[number], have))

    def _ways(self, number, state):
        """Yield the state with the next VM on each host that may take it; equal hosts once."""
        size, mine, apart = self._vms[number]
        known = 0
        for _room, here, _apart in state:
            known |= here
        for at in sorted(set(map(state.index, state))):
            room, here, used = state[at]
            rest = tuple(map(operator.sub, room, size))
            if min(rest) >= 0 and not used & apart and not mine & known & ~here:
                yield (*state[:at], (rest, here | mine, used | apart), *state[at + 1 :])


def carried(hosts, vms, there):
    """Return the hosts after each move of a plan, each checked as ``virt.migrate`` checks it."""
    for name, to in there.items():
        required = whatif.needs_of_move(vms[name])
        evaluations = {v.host: v for v in choose.evaluate(hosts, required)}
        assert evaluations[to].fits, (name, to, evaluations[to].reasons)
        hosts = {**hosts, to: whatif.with_vm(hosts[to], required)}
    return hosts
