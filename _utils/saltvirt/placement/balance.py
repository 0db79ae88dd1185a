"""Which few moves even out the load of a cloud: from what VMs really use, not what they may."""

from dataclasses import dataclass

from saltvirt.placement import fit, moves, plan

# The most loaded hosts give, the least loaded take: looking at all pairs would gain nothing.
_GIVERS, _TAKERS = 4, 16
# Moving memory costs too: so much balance per GiB.
COST_PER_GIB = 0.0005


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One move, and by how much closer it brings the loads of the two hosts."""

    name: str
    source: str
    target: str
    gain: float

    def to_dict(self):
        """Return the step as users see it."""
        return {"name": self.name, "from": self.source, "to": self.target,
                "gain": round(self.gain, 4)}  # fmt: skip


class _Loads:
    """The load of each host, and how uneven they are: the standard deviation of the shares."""

    def __init__(self, loads):
        self.vms = {host: dict(load["vms"]) for host, load in loads.items()}
        self._size = {host: (load["cpus"], load["memory_mib"]) for host, load in loads.items()}
        self._used = {host: [sum(vm[k] for vm in vms.values()) for k in ("cpu", "memory_mib")]
                      for host, vms in self.vms.items()}  # fmt: skip
        self.shares = {host: self._share(host, (0, 0)) for host in loads}
        self._sum = sum(self.shares.values())
        self._squares = sum(share * share for share in self.shares.values())

    def _share(self, host, more):
        return max((used + extra) / size if size else 0.0 for used, extra, size in
                   zip(self._used[host], more, self._size[host], strict=True))  # fmt: skip

    def spread(self, changes=()):
        """Return the standard deviation of the shares, with some of them changed."""
        total, squares, count = self._sum, self._squares, len(self.shares) or 1
        for host, share in changes:
            total += share - self.shares[host]
            squares += share * share - self.shares[host] ** 2
        return max(0.0, squares / count - (total / count) ** 2) ** 0.5

    def after(self, name, source, target):
        """Return the shares of both hosts once a VM has moved."""
        vm = self.vms[source][name]
        less, more = (-vm["cpu"], -vm["memory_mib"]), (vm["cpu"], vm["memory_mib"])
        return [(source, self._share(source, less)), (target, self._share(target, more))]

    def move(self, name, source, target):
        """Count a VM where it goes."""
        changes = self.after(name, source, target)
        vm = self.vms[source].pop(name)
        self.vms[target][name] = vm
        for host, sign in ((source, -1), (target, 1)):
            self._used[host][0] += sign * vm["cpu"]
            self._used[host][1] += sign * vm["memory_mib"]
        for host, share in changes:
            self._sum += share - self.shares[host]
            self._squares += share * share - self.shares[host] ** 2
            self.shares[host] = share


def spread(loads):
    """Return how uneven the load of a cloud is, 0 for even."""
    return round(_Loads(loads).spread(), 4)


def rebalance(hosts, loads, abouts, *, max_moves, threshold, refused=None):
    """
    Return the steps, the best first; each is worth more than ``threshold`` and its own cost.

    hosts
        ``{host: answer of virt.host_info}``.
    loads
        ``{host: answer of virt.load}``.
    abouts
        ``{name: answer of virt.migration_info}`` of the VMs; one that is not there, that has
        obstacles or is tagged to stay, stays.
    refused
        ``{name: {host: reasons}}`` of hosts that have said themselves that they cannot take a VM.
    """
    hosts, state, out = dict(hosts), _Loads(loads), []
    needs = {name: moves.need(about) for name, about in abouts.items()
             if not about["obstacles"] and not about["stay"]}  # fmt: skip
    while len(out) < max_moves:
        step = _best(hosts, state, needs, refused or {})
        if step is None or step.gain <= threshold:
            return out
        state.move(step.name, step.source, step.target)
        need = needs.pop(step.name)
        hosts[step.source] = plan.without_vm(hosts[step.source], need)
        hosts[step.target] = plan.with_vm(hosts[step.target], need)
        out.append(step)
    return out


def _best(hosts, state, needs, refused):
    order = sorted(state.shares, key=lambda host: (-state.shares[host], host))
    takers = [host for host in reversed(order) if not hosts[host]["maintenance"]][:_TAKERS]
    steps = [
        step
        for source in order[:_GIVERS]
        for name in sorted(state.vms[source])
        if name in needs
        for target in takers
        if target not in refused.get(name, ())
        if (step := _step(state, needs[name], source, target)) is not None
    ]
    # What a host says takes longer to look at than all gains together.
    for step in sorted(steps, key=lambda step: (-step.gain, step.name, step.target)):
        need = needs[step.name]
        if not fit.reasons(hosts[step.target], need) and not _parts_group(hosts[step.source], need):
            return step
    return None


def _step(state, need, source, target):
    if state.shares[target] >= state.shares[source]:
        return None
    changes = state.after(need.name, source, target)
    (_source, less), (_target, more) = changes
    # By how much closer the two come, whatever the size of the cloud.
    gain = state.shares[source] - state.shares[target] - abs(less - more)
    gain -= COST_PER_GIB * need.memory_mib / 1024
    if gain <= 0 or state.spread(changes) >= state.spread():
        return None
    return Step(name=need.name, source=source, target=target, gain=gain)


def _parts_group(host, need):
    """Return whether another VM of one of its affinity groups stays behind."""
    left = [vm for name, vm in host["vms"].items() if name != need.name]
    return any(set(need.affinity) & set(vm["affinity"]) for vm in left)
