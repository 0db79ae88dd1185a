"""Where many VMs go at once: each choice counts for the next one."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from saltvirt.model import Evaluation, Requirements
from saltvirt.placement import choose, fit, groups, pack, requirements, whatif
from saltvirt.placement.answers import HostInfo, MigrationInfo

_Refused = Mapping[str, Mapping[str, Iterable[str]]]


def evacuate(
    hosts: Mapping[str, HostInfo],
    vms: Mapping[str, MigrationInfo],
    weights: Mapping[str, float] | None = None,
    refused: _Refused | None = None,
    silent: Mapping[str, str] | None = None,
) -> tuple[dict[str, str], dict[str, str]]:
    """
    Return where each VM of a host goes: ``(moves, stays)``; big ones first, equal ones by name.

    hosts
        ``{host: answer of virt.host_info}`` of all others.
    vms
        ``{name: answer of virt.migration_info}`` of the VMs.
    refused
        ``{name: {host: reasons}}`` of hosts that have said themselves that they cannot take a VM.
    silent
        ``{host: why}`` of others that have not answered.

    ``moves`` is ``{name: host}`` in the order in which they are made, ``stays`` ``{name: why}``.
    VMs of an affinity group that no other host has go to one host, or stay together.
    """
    refused = refused or {}
    stays = {n: "; ".join(a.obstacles) for n, a in vms.items() if a.obstacles}
    needs = [requirements.of(moving) for name, moving in vms.items() if name not in stays]
    needs.sort(key=lambda required: (-required.memory_mib, -required.vcpus, required.name))
    rules = _Rules(hosts, needs, refused)
    bundles = _bundles(needs, rules)
    found = _packed(hosts, bundles, rules, choose.weighed(weights))
    out = {required.name: found[required.name] for required in needs if required.name in found}
    evaluated = _evaluate_once(_with_all(hosts, needs, out))
    left = [bundle for bundle in bundles if bundle[0].name not in out]
    return out, {**stays, **_staying(evaluated, left, refused, silent or {})}


def _staying(
    evaluated: Callable[[Requirements], list[Evaluation]],
    bundles: Iterable[list[Requirements]],
    refused: _Refused,
    silent: Mapping[str, str],
) -> dict[str, str]:
    """Return ``{name: why}`` of the VMs of the bundles that find no place."""
    out = {}
    for bundle in bundles:
        for required in bundle:
            said = {**_why(evaluated, required, bundle, refused), **silent}
            why = "; ".join(f"{host}: {one}" for host, one in said.items())
            out[required.name] = _clash(bundle) or why or "there is no other hypervisor"
    return out


def _with_all(
    hosts: Mapping[str, HostInfo], needs: Iterable[Requirements], moves: Mapping[str, str]
) -> dict[str, HostInfo]:
    """Return what the hosts would say when the moves have been made."""
    after = dict(hosts)
    for required in needs:
        if required.name in moves:
            after[moves[required.name]] = whatif.with_vm(after[moves[required.name]], required)
    return after


def _bundles(needs: Sequence[Requirements], rules: "_Rules") -> list[list[Requirements]]:
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


class _Rules:
    """Where VMs may go at all, whatever room there is; each question is answered once."""

    def __init__(
        self, hosts: Mapping[str, HostInfo], needs: Sequence[Requirements], refused: _Refused
    ) -> None:
        self._hosts, self._refused = hosts, refused
        self._standing: dict[Requirements, list[str]] = {}
        self._spots = groups.Spots(
            hosts, {group for required in needs for group in required.affinity}
        )
        self._apart: dict[str, set[str]] = {}
        for name, host in hosts.items():
            for vm in groups.members(host).values():
                for group in vm.anti_affinity:
                    self._apart.setdefault(group, set()).add(name)

    def new_groups(self, required: Requirements) -> list[str]:
        """Return the affinity groups of a VM that no host has yet."""
        return [group for group in required.affinity if not self._spots.hosts(group)]

    def hosts(self, required: Requirements) -> list[str]:
        """Return the hosts that one VM may go to."""
        out = self._standing_hosts(required)
        barred = {*self._refused.get(required.name, ())}.union(
            *(self._apart.get(group, ()) for group in required.anti_affinity)
        )
        for group in required.affinity:
            there = self._spots.hosts(group)
            barred.update(host for host in out if there and host not in there)
        return [host for host in out if host not in barred and not self._has(host, required.name)]

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


def _packed(
    hosts: Mapping[str, HostInfo],
    bundles: Iterable[list[Requirements]],
    rules: _Rules,
    weights: Sequence[float],
) -> dict[str, str]:
    """Return ``{name: host}`` of all VMs that there is room for."""
    limits = {name: [*fit.limits(host).values()] for name, host in hosts.items()}
    rooms = {name: tuple(fit.free(host).values()) for name, host in hosts.items()}
    items = [_item(bundle, rules) for bundle in bundles]
    found = pack.pack(items, rooms, lambda host, rest: choose.score(rest, limits[host], weights))
    return {
        required.name: found[bundle[0].name]
        for bundle in bundles
        for required in bundle
        if bundle[0].name in found
    }


def _item(bundle: list[Requirements], rules: _Rules) -> pack.Item:
    spots = rules.hosts(bundle[0])
    for required in bundle[1:]:
        others = set(rules.hosts(required))
        spots = [host for host in spots if host in others]
    return pack.Item(
        key=bundle[0].name,
        size=tuple(sum(getattr(required, key) for required in bundle) for key in fit.DIMENSIONS),
        spots=() if _clash(bundle) else tuple(spots),
        apart=frozenset(group for required in bundle for group in required.anti_affinity),
        count=len(bundle),
    )


def _clash(bundle: list[Requirements]) -> str | None:
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


def _evaluate_once(hosts: Mapping[str, HostInfo]) -> Callable[[Requirements], list[Evaluation]]:
    """Return a function that evaluates the hosts for a VM, once for all that need the same."""
    known: dict[Requirements, list[Evaluation]] = {}
    names = {name for host in hosts.values() for name in (*host.vms, *host.building)}

    def evaluated(required: Requirements) -> list[Evaluation]:
        required = required if required.name in names else replace(required, name="")
        if required not in known:
            known[required] = choose.evaluate(hosts, required)
        return known[required]

    return evaluated


def _why(
    evaluated: Callable[[Requirements], list[Evaluation]],
    required: Requirements,
    bundle: list[Requirements],
    refused: _Refused,
) -> dict[str, str]:
    """Return ``{host: why}`` of a VM, with those that stay together with it, at all hosts."""
    size = {key: sum(getattr(one, key) for one in bundle) for key in fit.DIMENSIONS}
    out = {}
    for one in [required, *(other for other in bundle if other is not required)]:
        late = refused.get(one.name, {})
        for evaluation in choose.overruled(evaluated(replace(one, **size)), late):
            if evaluation.reasons and evaluation.host not in out:
                with_it = "" if one is required else f"{one.name}, which stays with it: "
                out[evaluation.host] = with_it + ", ".join(evaluation.reasons)
    return out
