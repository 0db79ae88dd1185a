"""VMs that stay together, the hosts that all rules allow, and room for all of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from saltvirt.core.model import Requirements
from saltvirt.placement import fit, groups, pack, score
from saltvirt.placement.answers import HostInfo

# The hosts' own reasons why they cannot take a VM: ``{name: {host: reasons}}``.
Refused = Mapping[str, Mapping[str, Iterable[str]]]


class Rules:
    """The hosts that VMs may go to, apart from room; each answer is computed once."""

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
                    place = groups.place_for(group, name, host.tags)
                    self._apart.setdefault(group, set()).add(place)

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
            group_hosts = self._spots.hosts(group)
            barred.update(host for host in out if group_hosts and host not in group_hosts)
        return [host for host in out if host not in barred and not self._has(host, required.name)]

    def _barred(self, group: str) -> Iterator[str]:
        """Yield the hosts that an anti-affinity group excludes, with all of their racks."""
        taken_places = self._apart.get(group)
        if taken_places and group not in self._places:
            hosts_by_place = self._places[group] = {}
            for host, info in self._hosts.items():
                place = groups.place_for(group, host, info.tags)
                hosts_by_place.setdefault(place, []).append(host)
        for place in taken_places or ():
            yield from self._places[group][place]

    def _standing_hosts(self, required: Requirements) -> list[str]:
        # The standing reasons are the same for VMs of one make.
        make = replace(
            required, name="", vcpus=0, memory_mib=0, disk_mib=0, affinity=(), anti_affinity=()
        )
        if make not in self._standing:
            self._standing[make] = [
                name
                for name, host in sorted(self._hosts.items())
                if not fit.standing_reasons(host, make)
            ]
        return self._standing[make]

    def _has(self, host: str, name: str) -> bool:
        return name in self._hosts[host].vms or name in self._hosts[host].building


def group_by_affinity(needs: Sequence[Requirements], rules: Rules) -> list[list[Requirements]]:
    """
    Return the needs in lists of VMs that stay together, by their affinity groups.

    If other hosts have a group already, each VM goes there by itself.
    """
    of_group: dict[str, list[Requirements]] = {}
    out: dict[int, list[Requirements]] = {}
    for required in needs:
        new = rules.new_groups(required)
        bundles_by_id = {id(of_group[group]): of_group[group] for group in new if group in of_group}
        bundle = [member for number in bundles_by_id for member in out.pop(number)] + [required]
        out[id(bundle)] = bundle
        of_group.update({group: bundle for member in bundle for group in rules.new_groups(member)})
    return list(out.values())


def pack_bundles(
    hosts: Mapping[str, HostInfo],
    bundles: Iterable[list[Requirements]],
    rules: Rules,
    weights: Sequence[float],
) -> dict[str, str]:
    """Return ``{name: host}`` of all VMs that find room."""
    limits = {name: [*fit.limits(host).values()] for name, host in hosts.items()}
    rooms = {name: tuple(fit.free(host).values()) for name, host in hosts.items()}
    items = [_item(bundle, rules) for bundle in bundles]
    tags = {name: host.tags for name, host in hosts.items()}
    spots_by_bundle = pack.pack(
        items,
        rooms,
        lambda host, room_left: score.share_left(room_left, limits[host], weights),
        tags,
    )
    return {
        required.name: spots_by_bundle[bundle[0].name]
        for bundle in bundles
        for required in bundle
        if bundle[0].name in spots_by_bundle
    }


def find_way(hosts: Mapping[str, HostInfo], needs: Sequence[Requirements]) -> dict[str, str] | None:
    """Return ``{name: host}`` of a way to place all VMs, None if none was found."""
    rules = Rules(hosts, needs, {})
    hosts_by_vm = pack_bundles(
        hosts, group_by_affinity(needs, rules), rules, score.ordered_weights()
    )
    return hosts_by_vm if len(hosts_by_vm) == len(needs) else None


def _item(bundle: list[Requirements], rules: Rules) -> pack.Item:
    spots = rules.hosts(bundle[0])
    for required in bundle[1:]:
        other_hosts = set(rules.hosts(required))
        spots = [host for host in spots if host in other_hosts]
    return pack.Item(
        key=bundle[0].name,
        size=tuple(sum(getattr(required, d.name) for required in bundle) for d in fit.DIMENSIONS),
        spots=() if clash(bundle) else tuple(spots),
        apart=frozenset(group for required in bundle for group in required.anti_affinity),
        count=len(bundle),
    )


def clash(bundle: list[Requirements]) -> str | None:
    """Return why VMs that stay together exclude each other, None if they do not."""
    vms_by_group: dict[str, str] = {}
    for required in bundle:
        for group in set(required.anti_affinity):
            if group in vms_by_group:
                return (
                    f"{vms_by_group[group]} and {required.name} are to be together, by their "
                    "affinity "
                    f"groups, and apart, by the anti-affinity group {group}"
                )
            vms_by_group[group] = required.name
    return None
