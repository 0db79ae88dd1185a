"""Random tight clouds for the planners, and an exact solver that says what can be done."""

import json
import operator
from dataclasses import replace
from pathlib import Path

import told
from saltvirt.placement import choose, fit, requirements, whatif

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


def _groups(draw):
    given = {}
    if draw.random() < 0.35:
        given["affinity"] = [draw.choice(AFFINE)]
    if draw.random() < 0.3:
        given["anti_affinity"] = [draw.choice(APART)]
    return given


def _vm(draw, name):
    size = draw.choice([4, 8, 12, 16, 24, 32])
    disk = {"how": "copy", "virtual_bytes": draw.choice([1, 2, 4, 8]) * 2**30}
    return moving(name, size, vcpus=draw.choice([1, 2, 4]), disks=[disk], **_groups(draw))


def tight(draw, most_hosts=6, most_vms=14):
    """
    Return ``(hosts, vms)`` of a cloud with hardly more room than the VMs of a host need.

    Hosts have VMs of groups already, some await one; a VM has up to one group of each kind. What is
    scarce is memory, in every third cloud CPUs or disk instead.
    """
    vms = [_vm(draw, f"v{n}") for n in range(draw.randint(2, most_vms))]
    hosts = {f"h{n}": host(0) for n in range(draw.randint(2, most_hosts))}
    for number, name in enumerate(hosts):
        if draw.random() < 0.15:
            where = "coming" if draw.random() < 0.5 else "vms"
            hosts[name] = told.but(hosts[name], **{where: {f"o{number}": _groups(draw)}})
    _make_tight(draw, hosts, [requirements.of(vm) for vm in vms])
    return hosts, {vm.name: vm for vm in vms}


def _make_tight(draw, hosts, needs):
    """Limit what the hosts have to hardly more than the VMs need."""
    dims = {"memory_mib": ("memory", "limit_mib"), "vcpus": ("cpu", "vcpus_limit")}
    dims["disk_mib"] = ("storage", "limit_mib")
    scarce = draw.choice(["memory_mib", "memory_mib", "vcpus", "disk_mib"])
    for key, (part, limit) in dims.items():
        plenty = 1.0 if key == scarce else 1.5
        total = sum(getattr(required, key) for required in needs) * draw.uniform(1.0, 1.5) * plenty
        shares = [draw.choice([2, 3, 4]) for _ in hosts]
        for name, share in zip(list(hosts), shares, strict=True):
            most = {limit: round(total * share / sum(shares))}
            limited = replace(getattr(hosts[name], part), **most)
            hosts[name] = replace(hosts[name], **{part: limited})


def _bits(groups):
    return sum(1 << "abxy".index(group) for group in set(groups))


class Exact:
    """Whether all VMs can be placed: every way is tried, what has failed is not tried again."""

    def __init__(self, hosts, vms, most=100_000):
        needs = sorted(map(requirements.of, vms.values()), key=lambda n: (-n.memory_mib, n.name))
        self._vms = [
            ((n.vcpus, n.memory_mib, n.disk_mib), _bits(n.affinity), _bits(n.anti_affinity))
            for n in needs
        ]
        sizes = [size for size, _mine, _apart in self._vms]
        self._needed = [tuple(map(sum, zip(*sizes[n:], strict=True))) for n in range(len(sizes))]
        self._failed, self._left = set(), most
        seen = [{**one.coming, **one.vms}.values() for one in hosts.values()]
        here = [_bits(g for vm in vms for g in vm.affinity) for vms in seen]
        apart = [_bits(g for vm in vms for g in vm.anti_affinity) for vms in seen]
        rooms = [tuple(fit.free(one).values()) for one in hosts.values()]
        self._begin = tuple(zip(rooms, here, apart, strict=True))

    def feasible(self):
        """Return True or False, None if that took too long."""
        try:
            return self._placed(0, self._begin)
        except OverflowError:
            return None

    def _placed(self, number, state):
        if number == len(self._vms):
            return True
        key = (number, tuple(sorted(state)))
        rooms = zip(*(room for room, _here, _apart in state), strict=True)
        short = any(map(operator.gt, self._needed[number], map(sum, rooms)))
        if short or key in self._failed:
            return False
        self._left -= 1
        if self._left < 0:
            raise OverflowError
        if any(self._placed(number + 1, after) for after in self._ways(number, state)):
            return True
        self._failed.add(key)
        return False

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
        required = requirements.of(vms[name])
        evaluations = {v.host: v for v in choose.evaluate(hosts, required)}
        assert evaluations[to].fits, (name, to, evaluations[to].reasons)
        hosts = {**hosts, to: whatif.with_vm(hosts[to], required)}
    return hosts
