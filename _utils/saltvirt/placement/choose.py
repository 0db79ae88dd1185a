"""The choice of a host for a VM, and the order of the others."""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from saltvirt.core.errors import NoHostFits
from saltvirt.core.model import Evaluation, Policy, Requirements
from saltvirt.placement import fit, groups, headroom, remedies, score
from saltvirt.placement.answers import HostInfo

USUAL = Policy()


def evaluate(
    hosts: Mapping[str, HostInfo],
    required: Requirements,
    weights: Mapping[str, float] | None = None,
    policy: Policy = USUAL,
) -> list[Evaluation]:
    """
    Return the evaluation of every host, the best first; equal ones by name.

    hosts
        ``{host: answer of virt.host_info}``.
    weights
        Overrides of ``{"memory": 1.0, "cpu": 1.0, "disk": 0.5}``.
    policy
        Whether to spread or to pack. Defaults to spreading over the hosts.
    """
    spots = groups.Spots(hosts, {*required.affinity, *required.anti_affinity})
    factors, crowd = score.ordered_weights(weights), crowds(hosts, required, policy)
    dying = headroom.Headroom(hosts) if policy.headroom else None
    evaluations = []
    for name, host in hosts.items():
        reasons = [*fit.reasons(host, required), *spots.why_apart(required, name)]
        if dying and not reasons:
            reasons += filter(None, [dying.why_not(required, name)])
        points = _score(host, required, factors, policy) if not reasons else 0.0
        evaluations.append(
            Evaluation(host=name, reasons=tuple(reasons), score=points, **crowd(name))
        )
    return rank(evaluations)


def crowds(
    hosts: Mapping[str, HostInfo], required: Requirements, policy: Policy
) -> Callable[[str], dict[str, Any]]:
    """Return a function for ``crowd`` and ``note`` of a host, by the tag to spread over."""
    tag = policy.spread_over
    if tag is None:
        return lambda _host: {}
    vm_groups, names = {*required.anti_affinity}, dict[groups.Place, set[str]]()
    places = {host: groups.place(host, info.tags, tag) for host, info in hosts.items()}
    for host, info in hosts.items():
        place_names = names.setdefault(places[host], set())
        place_names.update(
            name
            for name, vm in groups.members(info).items()
            if name != required.name
            and (not vm_groups or not vm_groups.isdisjoint(vm.anti_affinity))
        )

    def of_host(host: str) -> dict[str, Any]:
        count, value = len(names[places[host]]), hosts[host].tags.get(tag)
        where = f"{tag} {value}" if value is not None else f"it, which has no tag {tag}"
        qualifier = "of its groups " if vm_groups else ""
        return {"crowd": count, "note": f"{count} VM{'s' * (count != 1)} {qualifier}in {where}"}

    return of_host


def rank(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    return sorted(evaluations, key=lambda v: (not v.fits, v.crowd, -v.score, v.host))


def apply_refusals(
    evaluations: Iterable[Evaluation], late_reasons: Mapping[str, Iterable[str]]
) -> list[Evaluation]:
    """
    Return the evaluations, the best first, after the hosts' own refusals.

    late_reasons
        ``{host: reasons}`` of the hosts that refused.
    """
    refusals = {
        host: Evaluation(host=host, reasons=tuple(reasons))
        for host, reasons in late_reasons.items()
    }
    return rank([refusals.get(v.host, v) if v.fits else v for v in evaluations])


def choose(
    hosts: Mapping[str, HostInfo],
    required: Requirements,
    weights: Mapping[str, float] | None = None,
    policy: Policy = USUAL,
) -> list[Evaluation]:
    """Return the evaluations of the hosts that fit, the best first, or raise NoHostFits."""
    evaluations = evaluate(hosts, required, weights, policy)
    fitting = [evaluation for evaluation in evaluations if evaluation.fits]
    if not fitting:
        raise no_host_fits(required, evaluations)
    return fitting


def no_host_fits(required: Requirements, evaluations: Sequence[Evaluation]) -> NoHostFits:
    """Return the error with every host's reasons why a VM cannot be there, and the remedies."""
    helps = remedies.format_cures(
        reason for evaluation in evaluations for reason in evaluation.reasons
    )
    return NoHostFits(required, {v.host: "; ".join(v.reasons) for v in evaluations}, helps)


def _score(
    host: HostInfo, required: Requirements, weights: Sequence[float], policy: Policy
) -> float:
    room_left = map(operator.sub, fit.free(host).values(), fit.needed(host, required))
    share_left = score.share_left(room_left, fit.limits(host).values(), weights)
    return 1.0 - share_left if policy.packs else share_left
