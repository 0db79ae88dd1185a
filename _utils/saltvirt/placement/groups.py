"""
The hosts of the VMs of affinity and anti-affinity groups, now or after their arrival.

The VMs of an anti-affinity group are on different hosts; if the group is called after a tag of
hosts, such as ``db@rack``, also in different racks. A host without that tag is a rack of its own.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from saltvirt.core.model import Requirements
from saltvirt.placement.answers import ComingFacts, HostInfo, VmFacts


def members(host: HostInfo) -> dict[str, VmFacts | ComingFacts]:
    """Return ``{name: facts}`` of all VMs that a host has or awaits."""
    return {**host.coming, **host.vms}


Place = tuple[str, str]


def place(host: str, tags: Mapping[str, str], tag: str) -> Place:
    """Return the rack of a host, or its value of another tag."""
    return ("", tags[tag]) if tag in tags else (host, "")


def tag_of(group: str) -> str | None:
    """Return the tag of hosts that keeps a group apart beyond hosts: ``rack`` of ``db@rack``."""
    return group.rpartition("@")[2] if "@" in group else None


def place_for(group: str, host: str, tags: Mapping[str, str]) -> Place:
    """Return the part of the cloud around a host where an anti-affinity group may have one VM."""
    tag = tag_of(group)
    return (host, "") if tag is None else place(host, tags, tag)


class Spots:
    """The hosts of the VMs of each group; a moving VM counts on its target."""

    def __init__(self, hosts: Mapping[str, HostInfo], only: Collection[str] | None = None) -> None:
        """
        Take in the groups of the hosts' VMs.

        hosts
            ``{host: answer of virt.host_info}``.
        only
            The groups to take in, of both kinds; all if None.
        """
        self._names: dict[str, dict[str, set[str]]] = {}
        self._apart: dict[str, dict[Place, dict[str, str]]] = {}
        self._tags = {host: info.tags for host, info in hosts.items()}
        if only is not None and not only:
            return
        coming = {name for host in hosts.values() for name in host.coming}
        for host, info in hosts.items():
            for name, vm in members(info).items():
                if name not in coming or name in info.coming:
                    self._count(host, name, vm.affinity, only)
                self._count_apart(host, name, vm.anti_affinity, only)

    def _count(
        self, host: str, name: str, groups: Iterable[str], only: Collection[str] | None = None
    ) -> None:
        for group in groups:
            if only is None or group in only:
                self._names.setdefault(group, {}).setdefault(host, set()).add(name)

    def _count_apart(
        self, host: str, name: str, groups: Iterable[str], only: Collection[str] | None = None
    ) -> None:
        for group in groups:
            if tag_of(group) is not None and (only is None or group in only):
                hosts_by_place = self._apart.setdefault(group, {})
                hosts_by_place.setdefault(self._place(host, group), {})[name] = host

    def _place(self, host: str, group: str) -> Place:
        return place_for(group, host, self._tags[host])

    def hosts(self, group: str, without: str | None = None) -> set[str]:
        """Return the hosts that have VMs of a group, ignoring a VM of the name ``without``."""
        names_by_host = self._names.get(group, {})
        return {host for host, names in names_by_host.items() if names - {without}}

    def add(self, required: Requirements, host: str) -> None:
        """Count one more VM."""
        self._count(host, required.name, required.affinity)
        self._count_apart(host, required.name, required.anti_affinity)

    def move(self, required: Requirements, source: str, target: str) -> None:
        """Count a VM on its target, and no longer on its source."""
        for group in required.affinity:
            self._names.get(group, {}).get(source, set()).discard(required.name)
        for group in filter(tag_of, required.anti_affinity):
            self._apart.get(group, {}).get(self._place(source, group), {}).pop(required.name, None)
        self.add(required, target)

    def why_apart(self, required: Requirements, host: str) -> Iterator[str]:
        """Yield why the VM's groups exclude a host, apart from VMs on that host."""
        for group in required.affinity:
            group_hosts = self.hosts(group, required.name)
            if group_hosts and host not in group_hosts:
                yield f"the affinity group {group} is on {', '.join(sorted(group_hosts))}"
        for group in filter(tag_of, required.anti_affinity):
            yield from self._why_not_in_rack(group, required.name, host)

    def _why_not_in_rack(self, group: str, name: str, host: str) -> Iterator[str]:
        # ``fit`` reports VMs on the host itself.
        hosts_by_vm = self._apart.get(group, {}).get(self._place(host, group), {})
        other_names = [
            vm_name
            for vm_name, vm_host in hosts_by_vm.items()
            if vm_host != host and vm_name != name
        ]
        if other_names:
            tag = tag_of(group) or ""
            rack = f"{tag} {self._tags[host][tag]}"
            yield f"{min(other_names)} of the anti-affinity group {group} is in {rack}"
