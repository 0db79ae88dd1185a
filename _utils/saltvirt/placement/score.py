"""
The score of a host: how much of it is left, as a number from 0 to 1.

Used by ``choose``, by ``affinity`` (evacuation) and by ``many`` (order of requests).
"""

import operator
from collections.abc import Iterable, Mapping, Sequence

from saltvirt.placement.fit import DIMENSIONS


def ordered_weights(weights: Mapping[str, float] | None = None) -> tuple[float, ...]:
    """Return the weights of all dimensions, by ``virt:weights`` or their defaults."""
    given = weights or {}
    return tuple(given.get(d.weight_key, d.default_weight) for d in DIMENSIONS)


def share_left(
    room_left: Iterable[float], limits: Iterable[float], weights: Sequence[float]
) -> float:
    """
    Return how much of a host is left, from 0 to 1: the weighted mean of the dimensions' shares.

    Between 0 and the limits it is additive: a VM changes it by the VM's own share, whatever else
    is on the host. By that ``choose.Board.best`` leaves out hosts. A score that is not additive
    needs other bounds there (``_most_taken``), or a look at all hosts.
    """
    shares = [
        min(1.0, max(0.0, room / limit)) if limit > 0 else 0.0
        for room, limit in zip(room_left, limits, strict=True)
    ]
    share: float = sum(map(operator.mul, weights, shares)) / (sum(weights) or 1.0)
    return share
