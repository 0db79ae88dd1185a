"""How much of a host is left, as a number from 0 to 1."""

import operator
from collections.abc import Iterable, Mapping, Sequence

WEIGHTS = {"memory": 1.0, "cpu": 1.0, "disk": 0.5}


def ordered_weights(weights: Mapping[str, float] | None = None) -> tuple[float, ...]:
    """Return the weights of all that is scored, as a tuple in the order of ``fit.DIMENSIONS``."""
    all_ = {**WEIGHTS, **(weights or {})}
    return tuple(all_[key] for key in ("cpu", "memory", "disk"))


def share_left(
    room_left: Iterable[float], limits: Iterable[float], weights: Sequence[float]
) -> float:
    """Return how much of a host is left, from 0 to 1; all are in the order of fit.DIMENSIONS."""
    shares = [
        min(1.0, max(0.0, room / limit)) if limit > 0 else 0.0
        for room, limit in zip(room_left, limits, strict=True)
    ]
    share: float = sum(map(operator.mul, weights, shares)) / (sum(weights) or 1.0)
    return share
