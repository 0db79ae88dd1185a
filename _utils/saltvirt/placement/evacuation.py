"""Where many VMs go at once: each choice counts for the next one."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from saltvirt.model import Evaluation, Requirements
from saltvirt.placement import bundles, choose, fit, requirements, score, whatif
from saltvirt.placement.answers import HostInfo, MigrationInfo
from saltvirt.placement.bundles import Refused

_WITH_IT = ", which stays with it: "


def evacuate(
    hosts: Mapping[str, HostInfo],
    vms: Mapping[str, MigrationInfo],
    weights: Mapping[str, float] | None = None,
    refused: Refused | None = None,
    silent: Mapping[str, str] | None = None,
    staying: Mapping[str, str] | None = None,
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
    staying
        ``{name: why}`` of those of the VMs that are not to be moved.

    ``moves`` is ``{name: host}`` in the order in which they are made, ``stays`` ``{name: why}``.
    VMs of an affinity group that no other host has go to one host, or stay together.
    """
    refused = refused or {}
    needs = [requirements.of(moving) for moving in vms.values()]
    needs.sort(key=lambda required: (-required.memory_mib, -required.vcpus, required.name))
    rules = bundles.Rules(hosts, needs, refused)
    every = bundles.together(needs, rules)
    stays = _bound(vms, staying or {}, every)
    together = [bundle for bundle in every if bundle[0].name not in stays]
    found = bundles.packed(hosts, together, rules, score.weighed(weights))
    out = {required.name: found[required.name] for required in needs if required.name in found}
    evaluated = _evaluate_once(_with_all(hosts, needs, out))
    left = [bundle for bundle in together if bundle[0].name not in out]
    return out, {**stays, **_staying(evaluated, left, refused, silent or {})}


def _bound(
    vms: Mapping[str, MigrationInfo],
    staying: Mapping[str, str],
    every: Iterable[list[Requirements]],
) -> dict[str, str]:
    """Return ``{name: why}`` of the VMs that do not move, and of those that stay with them."""
    cannot = {name: "; ".join(moving.obstacles) for name, moving in vms.items()} | {**staying}
    stays: dict[str, str] = {}
    for bundle in every:
        whys = {one.name: cannot[one.name] for one in bundle}
        first = next((f"{n}{_WITH_IT}{why}" for n, why in whys.items() if why), None)
        if first is not None:
            stays |= {name: why or first for name, why in whys.items()}
    return stays


def _staying(
    evaluated: Callable[[Requirements], list[Evaluation]],
    left: Iterable[list[Requirements]],
    refused: Refused,
    silent: Mapping[str, str],
) -> dict[str, str]:
    """Return ``{name: why}`` of the VMs of the bundles that find no place."""
    out = {}
    for bundle in left:
        for required in bundle:
            said = {**_why(evaluated, required, bundle, refused), **silent}
            why = "; ".join(f"{host}: {one}" for host, one in said.items())
            out[required.name] = bundles.clash(bundle) or why or "there is no other hypervisor"
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
    refused: Refused,
) -> dict[str, str]:
    """Return ``{host: why}`` of a VM, with those that stay together with it, at all hosts."""
    size = {key: sum(getattr(one, key) for one in bundle) for key in fit.DIMENSIONS}
    out = {}
    for one in [required, *(other for other in bundle if other is not required)]:
        late = refused.get(one.name, {})
        for evaluation in choose.overruled(evaluated(replace(one, **size)), late):
            if evaluation.reasons and evaluation.host not in out:
                with_it = "" if one is required else f"{one.name}{_WITH_IT}"
                out[evaluation.host] = with_it + ", ".join(evaluation.reasons)
    return out
