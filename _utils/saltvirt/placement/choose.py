"""Which host takes a VM, and in which order the others are tried."""

import operator
from collections.abc import Iterable, Mapping, Sequence

from saltvirt.errors import NoHostFits
from saltvirt.model import Evaluation, Requirements
from saltvirt.placement import fit, groups
from saltvirt.placement.answers import HostInfo

WEIGHTS = {"memory": 1.0, "cpu": 1.0, "disk": 0.5}


def evaluate(
    hosts: Mapping[str, HostInfo],
    required: Requirements,
    weights: Mapping[str, float] | None = None,
) -> list[Evaluation]:
    """
    Return the evaluation of every host, the best first; equal ones by name.

    hosts
        ``{host: answer of virt.host_info}``.
    weights
        Overrides of ``{"memory": 1.0, "cpu": 1.0, "disk": 0.5}``.
    """
    spots, factors = groups.Spots(hosts, required.affinity), weighed(weights)
    evaluations = []
    for name, host in hosts.items():
        why = [*fit.reasons(host, required), *spots.why_apart(required, name)]
        points = _score(host, required, factors) if not why else 0.0
        evaluations.append(Evaluation(host=name, reasons=tuple(why), score=points))
    return ranked(evaluations)


def weighed(weights: Mapping[str, float] | None = None) -> tuple[float, ...]:
    """Return the weights of all that is scored, as a tuple in the order of ``fit.DIMENSIONS``."""
    all_ = {**WEIGHTS, **(weights or {})}
    return tuple(all_[key] for key in ("cpu", "memory", "disk"))


def ranked(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    return sorted(evaluations, key=lambda v: (not v.fits, -v.score, v.host))


def overruled(
    evaluations: Iterable[Evaluation], late: Mapping[str, Iterable[str]]
) -> list[Evaluation]:
    """
    Return the evaluations, the best first, once hosts were asked themselves.

    late
        ``{host: reasons}`` of those that refused.
    """
    refused = {host: Evaluation(host=host, reasons=tuple(why)) for host, why in late.items()}
    return ranked([refused.get(v.host, v) if v.fits else v for v in evaluations])


def choose(
    hosts: Mapping[str, HostInfo],
    required: Requirements,
    weights: Mapping[str, float] | None = None,
) -> list[Evaluation]:
    """Return the evaluations of the hosts that fit, the best first, or raise NoHostFits."""
    evaluations = evaluate(hosts, required, weights)
    fitting = [evaluation for evaluation in evaluations if evaluation.fits]
    if not fitting:
        raise NoHostFits(required, {v.host: "; ".join(v.reasons) for v in evaluations})
    return fitting


def _score(host: HostInfo, required: Requirements, weights: Sequence[float]) -> float:
    left, limits = fit.free(host), fit.limits(host)
    rest = [left[key] - getattr(required, key) for key in fit.DIMENSIONS]
    return score(rest, [limits[key] for key in fit.DIMENSIONS], weights)


def score(rest: Iterable[float], limits: Iterable[float], weights: Sequence[float]) -> float:
    """Return how much of a host is left, from 0 to 1; all are in the order of fit.DIMENSIONS."""
    shares = [
        min(1.0, max(0.0, one / limit)) if limit > 0 else 0.0
        for one, limit in zip(rest, limits, strict=True)
    ]
    found: float = sum(map(operator.mul, weights, shares)) / (sum(weights) or 1.0)
    return found
