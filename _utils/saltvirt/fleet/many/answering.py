"""Wait for the minions of many new VMs at once."""

import time
from collections.abc import Mapping

from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.pings import Pings

# How often those that are silent are looked for.
_EVERY_S = 5


def wait(cloud: Cloud, until: Mapping[str, float], every_s: float = _EVERY_S) -> dict[str, float]:
    """
    Return ``{minion: when it answered}``, by the monotonic clock, of those that did in time.

    until
        ``{minion: when it is given up}``.
    """
    out: dict[str, float] = {}
    with cloud.client() as local:
        pings = Pings(local, cloud, every_s)
        while left := {m for m, end in until.items() if m not in out and end > time.monotonic()}:
            begun = time.monotonic()
            answered = pings.answered(left)
            out |= dict.fromkeys(answered, time.monotonic())
            if answered != left:
                time.sleep(max(0.0, begun + every_s - time.monotonic()))
    return out
