"""Wait for the minions of many new VMs at once."""

import time
from collections.abc import Mapping

from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc.pings import Pings

# How often unresponsive minions are pinged.
_EVERY_S = 5


def wait_for_minions(
    cloud: Cloud, deadlines: Mapping[str, float], out: dict[str, float], every_s: float = _EVERY_S
) -> None:
    """
    Wait for each minion until its deadline.

    deadlines
        ``{minion: deadline}``, by the monotonic clock.
    out
        Gets ``{minion: when it answered}`` at once, so that an interrupted wait loses nothing.
    """
    with cloud.client() as local:
        pings = Pings(local, cloud, every_s)
        while pending := {
            minion
            for minion, deadline in deadlines.items()
            if minion not in out and deadline > time.monotonic()
        }:
            begun = time.monotonic()
            answered = pings.answered(pending)
            out |= dict.fromkeys(answered, time.monotonic())
            if answered != pending:
                time.sleep(max(0.0, begun + every_s - time.monotonic()))
