"""Find hosts for all VMs of a host that is emptied; each choice counts for the next one."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from saltvirt.core.model import Evaluation, Requirements
from saltvirt.placement import affinity, choose, fit, score, whatif
from saltvirt.placement.affinity import Refused
from saltvirt.placement.answers import HostInfo, MigrationInfo

_WITH_IT = ", which stays with it: "


def evacuate(
    hosts: Mapping[str, HostInfo],
    vms: Mapping[str, MigrationInfo],
    weights: Mapping[str, float] | None = None,
    refused: Refused | None = None,
    unresponsive: Mapping[str, str] | None = None,
    staying: Mapping[str, str] | None = None,
) -> tuple[dict[str, str], dict[str, str]]:
    """
    Return the new host of each VM of a host: ``(moves, stays)``; big ones first, equal ones by
    name.

    hosts
        ``{host: answer of virt.host_info}`` of all others.
    vms
        ``{name: answer of virt.migration_info}`` of the VMs.
    refused
        ``{name: {host: reasons}}``: the hosts' own reasons why they cannot take a VM.
    unresponsive
        ``{host: reason}`` of unresponsive hosts.
    staying
        ``{name: reason}`` of those of the VMs that are not to be moved.

    ``moves`` is ``{name: host}`` in the order of the moves, ``stays`` ``{name: reason}``.
    VMs of an affinity group that no other host has go to one host, or stay together.
    """
    refused = refused or {}
    needs = [whatif.needs_of_move(moving) for moving in vms.values()]
    needs.sort(key=lambda required: (-required.memory_mib, -required.vcpus, required.name))
    rules = affinity.Rules(hosts, needs, refused)
    all_bundles = affinity.group_by_affinity(needs, rules)
    stays = _find_staying(vms, staying or {}, all_bundles)
    together = [bundle for bundle in all_bundles if bundle[0].name not in stays]
    hosts_by_vm = affinity.pack_bundles(hosts, together, rules, score.ordered_weights(weights))
    out = {
        required.name: hosts_by_vm[required.name]
        for required in needs
        if required.name in hosts_by_vm
    }
    evaluated = _evaluate_once(_after_moves(hosts, needs, out))
    unplaced_bundles = [bundle for bundle in together if bundle[0].name not in out]
    return out, {
        **stays,
        **_explain_staying(evaluated, unplaced_bundles, refused, unresponsive or {}),
    }


def _find_staying(
    vms: Mapping[str, MigrationInfo],
    staying: Mapping[str, str],
    all_bundles: Iterable[list[Requirements]],
) -> dict[str, str]:
    """Return ``{name: reason}`` of the VMs that do not move, and of those that stay with them."""
    obstacles = {name: "; ".join(moving.obstacles) for name, moving in vms.items()} | {**staying}
    stays: dict[str, str] = {}
    for bundle in all_bundles:
        reasons = {member.name: obstacles[member.name] for member in bundle}
        first_reason = next(
            (f"{n}{_WITH_IT}{reason}" for n, reason in reasons.items() if reason), None
        )
        if first_reason is not None:
            stays |= {name: reason or first_reason for name, reason in reasons.items()}
    return stays


def _explain_staying(
    evaluated: Callable[[Requirements], list[Evaluation]],
    unplaced_bundles: Iterable[list[Requirements]],
    refused: Refused,
    unresponsive: Mapping[str, str],
) -> dict[str, str]:
    """Return ``{name: reason}`` of the VMs of the bundles that find no place."""
    out = {}
    for bundle in unplaced_bundles:
        for required in bundle:
            reasons_by_host = {
                **_find_reasons(evaluated, required, bundle, refused),
                **unresponsive,
            }
            reason = "; ".join(f"{host}: {text}" for host, text in reasons_by_host.items())
            out[required.name] = affinity.clash(bundle) or reason or "there is no other hypervisor"
    return out


def _after_moves(
    hosts: Mapping[str, HostInfo], needs: Iterable[Requirements], moves: Mapping[str, str]
) -> dict[str, HostInfo]:
    """Return the hosts' answers as they would be after the moves."""
    after = dict(hosts)
    for required in needs:
        if required.name in moves:
            after[moves[required.name]] = whatif.with_vm(after[moves[required.name]], required)
    return after


def _evaluate_once(hosts: Mapping[str, HostInfo]) -> Callable[[Requirements], list[Evaluation]]:
    """Return a function that evaluates the hosts for a VM, once for all VMs with equal needs."""
    evaluations_by_need: dict[Requirements, list[Evaluation]] = {}
    names = {name for host in hosts.values() for name in (*host.vms, *host.building)}

    def evaluated(required: Requirements) -> list[Evaluation]:
        required = required if required.name in names else replace(required, name="")
        if required not in evaluations_by_need:
            evaluations_by_need[required] = choose.evaluate(hosts, required)
        return evaluations_by_need[required]

    return evaluated


def _find_reasons(
    evaluated: Callable[[Requirements], list[Evaluation]],
    required: Requirements,
    bundle: list[Requirements],
    refused: Refused,
) -> dict[str, str]:
    """Return ``{host: reason}`` for a VM and those that stay together with it, for all hosts."""
    size = {d.name: sum(getattr(member, d.name) for member in bundle) for d in fit.DIMENSIONS}
    out = {}
    for member in [required, *(companion for companion in bundle if companion is not required)]:
        refusals = refused.get(member.name, {})
        for evaluation in choose.apply_refusals(evaluated(replace(member, **size)), refusals):
            if evaluation.reasons and evaluation.host not in out:
                prefix = "" if member is required else f"{member.name}{_WITH_IT}"
                out[evaluation.host] = prefix + ", ".join(evaluation.reasons)
    return out
