"""VMs that stay together, where they may go by all rules, and room for all of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from saltvirt.model import Requirements
from saltvirt.placement import fit, groups, pack, score
from saltvirt.placement.answers import HostInfo

# Why hosts have said themselves that they cannot take a VM: ``{name: {host: reasons}}``.
Refused = Mapping[str, Mapping[str, Iterable[str]]]


class Rules:
    """Where VMs may go at all, whatever room there is; each question is answered once."""

    def __init__(
        self, hosts: Mapping[str, HostInfo], needs: Sequence[Requirements], refused: Refused
    ) -> None:
        self._hosts, self._refused = hosts, refused
        self._standing: dict[Requirements, list[str]] = {}
        self._spots = groups.Spots(
            hosts, {group for required in needs for group in required.affinity}
        )
        self._apart: dict[str, set[groups.Place]] = {}
        self._places: dict[str, dict[groups.Place, list[str]]] = {}
        for name, host in hosts.items():
            for vm in groups.members(host).values():
                for group in vm.anti_affinity:
                    at = groups.place_for(group, name, host.tags)
                    self._apart.setdefault(group, set()).add(at)

    def new_groups(self, required: Requirements) -> list[str]:
        """Return the affinity groups of a VM that no host has yet."""
        return [group for group in required.affinity if not self._spots.hosts(group)]

    def hosts(self, required: Requirements) -> list[str]:
        """Return the hosts that one VM may go to."""
        out = self._standing_hosts(required)
        barred = {*self._refused.get(required.name, ())}
        for group in required.anti_affinity:
            barred.update(self._barred(group))
        for group in required.affinity:
            there = self._spots.hosts(group)
            barred.update(host for host in out if there and host not in there)
        return [host for host in out if host not in barred and not self._has(host, required.name)]

    def _barred(self, group: str) -> Iterator[str]:
        """Yield the hosts that an anti-affinity group has taken, with all of their racks."""
        taken = self._apart.get(group)
        if taken and group not in self._places:
            known = self._places[group] = {}
            for host, info in self._hosts.items():
                at = groups.place_for(group, host, info.tags)
                known.setdefault(at, []).append(host)
        for at in taken or ():
            yield from self._places[group][at]

    def _standing_hosts(self, required: Requirements) -> list[str]:
        # What a host is does not differ for VMs of one make.
        make = replace(
            required, name="", vcpus=0, memory_mib=0, disk_mib=0, affinity=(), anti_affinity=()
        )
        if make not in self._standing:
            self._standing[make] = [
                name for name, host in sorted(self._hosts.items()) if not fit.standing(host, make)
            ]
        return self._standing[make]

    def _has(self, host: str, name: str) -> bool:
        return name in self._hosts[host].vms or name in self._hosts[host].building


def together(needs: Sequence[Requirements], rules: Rules) -> list[list[Requirements]]:
    """
    Return the needs in lists of those that stay together, as they share affinity groups.

    Where a group is on other hosts already, each goes there for itself.
    """
    of_group: dict[str, list[Requirements]] = {}
    out: dict[int, list[Requirements]] = {}
    for required in needs:
        new = rules.new_groups(required)
        near = {id(of_group[group]): of_group[group] for group in new if group in of_group}
        bundle = [one for number in near for one in out.pop(number)] + [required]
        out[id(bundle)] = bundle
        of_group.update({group: bundle for one in bundle for group in rules.new_groups(one)})
    return list(out.values())


def packed(
    hosts: Mapping[str, HostInfo],
    bundles: Iterable[list[Requirements]],
    rules: Rules,
    weights: Sequence[float],
) -> dict[str, str]:
    """Return ``{name: host}`` of all VMs that there is room for."""
    limits = {name: [*fit.limits(host).values()] for name, host in hosts.items()}
    rooms = {name: tuple(fit.free(host).values()) for name, host in hosts.items()}
    items = [_item(bundle, rules) for bundle in bundles]
    tags = {name: host.tags for name, host in hosts.items()}
    found = pack.pack(items, rooms, lambda host, rest: score.of(rest, limits[host], weights), tags)
    return {
        required.name: found[bundle[0].name]
        for bundle in bundles
        for required in bundle
        if bundle[0].name in found
    }


def way(hosts: Mapping[str, HostInfo], needs: Sequence[Requirements]) -> dict[str, str] | None:
    """Return ``{name: host}`` of a way to place all VMs, None if none was found."""
    rules = Rules(hosts, needs, {})
    found = packed(hosts, together(needs, rules), rules, score.weighed())
    return found if len(found) == len(needs) else None


def _item(bundle: list[Requirements], rules: Rules) -> pack.Item:
    spots = rules.hosts(bundle[0])
    for required in bundle[1:]:
        others = set(rules.hosts(required))
        spots = [host for host in spots if host in others]
    return pack.Item(
        key=bundle[0].name,
        size=tuple(sum(getattr(required, key) for required in bundle) for key in fit.DIMENSIONS),
        spots=() if clash(bundle) else tuple(spots),
        apart=frozenset(group for required in bundle for group in required.anti_affinity),
        count=len(bundle),
    )


def clash(bundle: list[Requirements]) -> str | None:
    """Return why VMs that stay together can be nowhere, None if that is not in themselves."""
    first: dict[str, str] = {}
    for required in bundle:
        for group in set(required.anti_affinity):
            if group in first:
                return (
                    f"{first[group]} and {required.name} are to be together, by their affinity "
                    f"groups, and apart, by the anti-affinity group {group}"
                )
            first[group] = required.name
    return None
