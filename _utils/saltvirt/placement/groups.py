"""Where the VMs of affinity and anti-affinity groups are, or will be once they have arrived."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from saltvirt.model import Requirements
from saltvirt.placement.answers import ComingFacts, HostInfo, VmFacts


def members(host: HostInfo) -> dict[str, VmFacts | ComingFacts]:
    """
    Return ``{name: facts}`` of all VMs that a host has or awaits.

    host
        One answer of ``virt.host_info``; an older host only names what is being built there.
    """
    return {**host.coming, **host.vms}


class Spots:
    """Which hosts have the VMs of each affinity group; one that is moving counts where it goes."""

    def __init__(self, hosts: Mapping[str, HostInfo], only: Collection[str] | None = None) -> None:
        """
        Look through the hosts.

        hosts
            ``{host: answer of virt.host_info}``.
        only
            The groups that matter; all if None.
        """
        self._names: dict[str, dict[str, set[str]]] = {}
        if only is not None and not only:
            return
        coming = {name for host in hosts.values() for name in host.coming}
        for host, info in hosts.items():
            for name, vm in members(info).items():
                if name not in coming or name in info.coming:
                    self._count(host, name, vm.affinity, only)

    def _count(
        self, host: str, name: str, groups: Iterable[str], only: Collection[str] | None = None
    ) -> None:
        for group in groups:
            if only is None or group in only:
                self._names.setdefault(group, {}).setdefault(host, set()).add(name)

    def hosts(self, group: str, without: str | None = None) -> set[str]:
        """Return the hosts that have VMs of a group, but for a VM of this name."""
        there = self._names.get(group, {})
        return {host for host, names in there.items() if names - {without}}

    def move(self, required: Requirements, source: str, target: str) -> None:
        """Count a VM where it goes."""
        for group in required.affinity:
            self._names.get(group, {}).get(source, set()).discard(required.name)
        self._count(target, required.name, required.affinity)

    def why_apart(self, required: Requirements, host: str) -> Iterator[str]:
        """Yield why a host is not where the VM's affinity groups are."""
        for group in required.affinity:
            there = self.hosts(group, required.name)
            if there and host not in there:
                yield f"the affinity group {group} is on {', '.join(sorted(there))}"
