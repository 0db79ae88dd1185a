"""
Whether any single host may fail, and its VMs still find room on the others.

What counts is what a VM needs to start again elsewhere: CPUs, memory, its groups, a host that runs
guests of its kind and is not in maintenance. Its disks do not count: a VM does not start again if
its disks failed with its host.

A way for the VMs of each host is kept, so that one VM more costs a check of the ways that need its
host. A broken way is replaced: by best fit first, and if that finds none, by ``bundles``, which
searches all ways within its bounds.
"""

import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from saltvirt.core.model import Requirements
from saltvirt.placement import affinity, fit, groups, whatif
from saltvirt.placement.answers import HostInfo

_Size = tuple[int, int]


@dataclass(slots=True)
class _Way:
    """The new hosts of a failed host's VMs, and what they take there; None if there are none."""

    there: dict[str, str] | None
    taken: dict[str, _Size] = field(default_factory=dict)


class Headroom:
    """The hosts, and for each of them a way for its VMs."""

    def __init__(self, hosts: Mapping[str, HostInfo]) -> None:
        """Take in ``{host: answer of virt.host_info}``."""
        self._hosts = dict(hosts)
        self._needs = {name: _needs(info) for name, info in hosts.items()}
        self._left = {name: _room_left(info) for name, info in hosts.items()}
        self._ways = {name: self._way(name) for name in sorted(hosts)}

    def why_not(self, required: Requirements, host: str) -> str | None:
        """Return why one VM more on a host would leave too little room, or None."""
        broken = next((name for name, way in self._ways.items() if way.there is None), None)
        if broken is not None:
            return f"headroom: if {broken} died now, its VMs would not find room elsewhere"
        for dead in self._concerned(required, host):
            if self._with(required, host)._way(dead).there is None:
                suffix = " and this one" if dead == host else ""
                return (
                    f"headroom: if {dead} died then, its VMs{suffix} would not find room elsewhere"
                )
        return None

    def put(self, required: Requirements, host: str) -> None:
        """Count one VM more on a host."""
        concerned = list(self._concerned(required, host))
        after = self._with(required, host)
        self._hosts, self._needs, self._left = after._hosts, after._needs, after._left
        for dead in concerned:
            self._ways[dead] = self._way(dead)

    def _concerned(self, required: Requirements, host: str) -> Iterator[str]:
        """Yield the hosts with ways that one VM more on a host may break: that host first."""
        yield host
        group_names = {*required.affinity, *required.anti_affinity}
        room_left = tuple(map(operator.sub, self._left[host], _size(required)))
        for name, way in self._ways.items():
            if name == host or way.there is None:
                continue
            taken_room = way.taken.get(host)
            is_full = taken_room is not None and not all(map(operator.le, taken_room, room_left))
            if is_full or (group_names and _has_any_group(self._needs[name], group_names)):
                yield name

    def _with(self, required: Requirements, host: str) -> "Headroom":
        """Return the hosts with one VM more, without ways."""
        after = object.__new__(Headroom)
        more = _restart_needs(self._hosts[host], required)
        info = whatif.with_vm(self._hosts[host], replace(required, disk_mib=0, disk_profile=None))
        after._hosts = {**self._hosts, host: info}
        after._needs = {**self._needs, host: [*self._needs[host], more]}
        after._left = {**self._left, host: _room_left(info)}
        after._ways = {}
        return after

    def _way(self, dead: str) -> _Way:
        """Return a way for the VMs of a host, if there is one."""
        needs = self._needs[dead]
        hosts_by_vm = self._roughly(dead) if not any(_in_group(need) for need in needs) else None
        if hosts_by_vm is None:
            hosts_by_vm = self._exactly(dead)
        if hosts_by_vm is None:
            return _Way(None)
        way = _Way(hosts_by_vm)
        for required in needs:
            host = hosts_by_vm[required.name]
            before = way.taken.get(host, (0, 0))
            way.taken[host] = (before[0] + required.vcpus, before[1] + required.memory_mib)
        return way

    def _roughly(self, dead: str) -> dict[str, str] | None:
        """Return a way by best fit among all hosts, the VMs with most memory first."""
        room_by_host = dict(self._left)
        del room_by_host[dead]
        order = sorted(room_by_host, key=lambda name: (-room_by_host[name][1], name))
        out: dict[str, str] = {}
        for required in sorted(
            self._needs[dead], key=lambda required: (-required.memory_mib, required.name)
        ):
            size = _size(required)
            for host in order:
                if all(map(operator.le, size, room_by_host[host])) and not fit.standing_reasons(
                    self._hosts[host], required
                ):
                    room_by_host[host] = (
                        room_by_host[host][0] - size[0],
                        room_by_host[host][1] - size[1],
                    )
                    out[required.name] = host
                    break
            else:
                return None
        return out

    def _exactly(self, dead: str) -> dict[str, str] | None:
        other_hosts = {name: info for name, info in self._hosts.items() if name != dead}
        return affinity.find_way(other_hosts, self._needs[dead])


def _room_left(info: HostInfo) -> _Size:
    free = fit.free(info)
    return free["vcpus"], free["memory_mib"]


def _size(required: Requirements) -> _Size:
    return required.vcpus, required.memory_mib


def _in_group(required: Requirements) -> bool:
    return bool(required.affinity or required.anti_affinity)


def _has_any_group(needs: Iterable[Requirements], group_names: set[str]) -> bool:
    return any(
        not group_names.isdisjoint((*required.affinity, *required.anti_affinity))
        for required in needs
    )


def _restart_needs(info: HostInfo, required: Requirements) -> Requirements:
    """Return what a VM needs to start on another host, with the kind of guest of its own host."""
    return Requirements(
        name=required.name,
        vcpus=required.vcpus,
        memory_mib=required.memory_mib,
        affinity=required.affinity,
        anti_affinity=required.anti_affinity,
        arch=required.arch or info.cpu.arch,
        domain_type=required.domain_type or info.domain_types.default,
    )


def _needs(info: HostInfo) -> list[Requirements]:
    return [
        _restart_needs(
            info,
            Requirements(
                name=name,
                vcpus=vm.vcpus,
                memory_mib=vm.memory_mib,
                affinity=tuple(vm.affinity),
                anti_affinity=tuple(vm.anti_affinity),
            ),
        )
        for name, vm in groups.members(info).items()
    ]
