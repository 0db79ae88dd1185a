"""The real load of hosts, measured several times, as a single reading is mostly chance."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from saltvirt.placement.answers import Load, VmLoad

# Loads count as different only beyond so many standard errors: among hundreds of hosts with equal
# loads, some pair is three apart.
SURE = 4.0
_FEWEST = 3
# The assumed error of one reading, as a part of it, if nothing better is known.
_UNKNOWN = 1 / 3


def average(readings: Sequence[Load]) -> Load:
    """
    Return one answer of ``virt.load`` from several consecutive ones of a host.

    ``cpu`` of each VM is the mean, and ``cpu_error`` its standard error; the host has that error
    for the sum of its VMs, as they may be busy together. None if there are too few readings.
    """
    last = readings[-1]
    vms: dict[str, VmLoad] = {}
    for name, vm_load in last.vms.items():
        cpu = [reading.vms[name].cpu for reading in readings if name in reading.vms]
        vms[name] = replace(vm_load, cpu=statistics.fmean(cpu), cpu_error=standard_error(cpu))
    sums = [
        sum(vm.cpu for name, vm in reading.vms.items() if name in last.vms) for reading in readings
    ]
    return replace(last, vms=vms, cpu_error=standard_error(sums))


def standard_error(values: Sequence[float]) -> float | None:
    """
    Return the standard error of the mean of consecutive readings, None for too few.

    Load that lasts for several readings makes them alike, so that the plain formula is too low: it
    is also applied to longer and longer stretches, and the highest result counts.
    """
    errors, stretch = [], 1
    while (count := len(values) // stretch) >= _FEWEST:
        means = [statistics.fmean(values[n * stretch : (n + 1) * stretch]) for n in range(count)]
        mean = statistics.fmean(means)
        # As statistics.stdev, which uses fractions, at a thirtieth of the time.
        variance = math.fsum((stretch_mean - mean) ** 2 for stretch_mean in means) / (count - 1)
        errors.append((variance / count) ** 0.5)
        stretch *= 2
    return max(errors, default=None)


class Loads:
    """The load of each host, and its unevenness: the standard deviation of the shares."""

    def __init__(self, loads: Mapping[str, Load]) -> None:
        """Take in ``{host: answer of virt.load, or of average()}``."""
        self.vms = {host: dict(load.vms) for host, load in loads.items()}
        self._size = {host: (load.cpus, load.memory_mib) for host, load in loads.items()}
        self._used = {
            host: [sum(vm.cpu for vm in vms.values()), sum(vm.memory_mib for vm in vms.values())]
            for host, vms in self.vms.items()
        }
        self._variance = self._variances(loads)
        self._bounds: dict[str, tuple[float, float]] = {}
        self.shares = {host: self.share(host) for host in loads}
        self.total = sum(self.shares.values())
        self._squares = sum(share * share for share in self.shares.values())

    def _variances(self, loads: Mapping[str, Load]) -> dict[str, float]:
        variances = [_variance(vm) for vms in self.vms.values() for vm in vms.values()]
        # A VM that happened to be idle all the time would seem to be certain: each one is taken to
        # vary at least as VMs do here on average.
        usual = sum(variances) / len(variances) if variances else 0.0
        return {
            host: max(
                sum(max(usual, _variance(vm)) for vm in vms.values()),
                (loads[host].cpu_error or 0) ** 2,
            )
            for host, vms in self.vms.items()
        }

    def share(self, host: str, cpu: float = 0, memory_mib: float = 0) -> float:
        """Return the used share of a host, with so much more use."""
        (cpu_used, memory_used), (cpus, size_mib) = self._used[host], self._size[host]
        return max(
            (cpu_used + cpu) / cpus if cpus else 0.0,
            (memory_used + memory_mib) / size_mib if size_mib else 0.0,
        )

    def surely(self, host: str) -> tuple[float, float]:
        """Return the least and the most that a host's share may be, given the readings' errors."""
        if host not in self._bounds:
            doubt = SURE * self._variance[host] ** 0.5
            self._bounds[host] = (self.share(host, -doubt), self.share(host, doubt))
        return self._bounds[host]

    def spread(self, changes: Iterable[tuple[str, float]] = ()) -> float:
        """Return the standard deviation of the shares, with some of them changed."""
        total, squares, count = self.total, self._squares, len(self.shares) or 1
        for host, share in changes:
            total += share - self.shares[host]
            squares += share * share - self.shares[host] ** 2
        deviation: float = max(0.0, squares / count - (total / count) ** 2) ** 0.5
        return deviation

    def after(self, name: str, source: str, target: str) -> list[tuple[str, float]]:
        """Return the shares of both hosts once a VM has moved."""
        vm = self.vms[source][name]
        return [
            (source, self.share(source, -vm.cpu, -vm.memory_mib)),
            (target, self.share(target, vm.cpu, vm.memory_mib)),
        ]

    def move(self, name: str, source: str, target: str) -> None:
        """Count a VM on its target, and no longer on its source."""
        changes = self.after(name, source, target)
        vm = self.vms[source].pop(name)
        self.vms[target][name] = vm
        for host, sign in ((source, -1), (target, 1)):
            self._used[host][0] += sign * vm.cpu
            self._used[host][1] += sign * vm.memory_mib
            self._bounds.pop(host, None)
            self._variance[host] = max(0.0, self._variance[host] + sign * _variance(vm))
        for host, share in changes:
            self.total += share - self.shares[host]
            self._squares += share * share - self.shares[host] ** 2
            self.shares[host] = share


def _variance(vm: VmLoad) -> float:
    error_ = vm.cpu_error
    return (_UNKNOWN * vm.cpu if error_ is None else error_) ** 2
