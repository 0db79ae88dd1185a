"""Wait for the minions of many new VMs at once."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from saltvirt.fleet import minions
from saltvirt.fleet.cloud import Cloud

# How often those that are silent are asked, and how long they have for an answer.
_EVERY_S = 5
# How long after its event an answer is in the master's job cache at the latest.
_STORED_S = 2


def wait(cloud: Cloud, until: Mapping[str, float], every_s: float = _EVERY_S) -> dict[str, float]:
    """
    Return ``{minion: when it answered}``, by the monotonic clock, of those that did in time.

    until
        ``{minion: when it is given up}``.
    """
    out: dict[str, float] = {}
    with cloud.client() as local:
        while left := {m for m, end in until.items() if m not in out and end > time.monotonic()}:
            begun = time.monotonic()
            answered = _pinged(local, cloud, left, every_s)
            out |= dict.fromkeys(answered, time.monotonic())
            if answered != left:
                time.sleep(max(0.0, begun + every_s - time.monotonic()))
    return out


def _pinged(local: Any, cloud: Cloud, wanted: Iterable[str], wait_s: float) -> set[str]:
    """Return which minions answer; only what the master has stored is believed."""
    left = set(wanted)
    jid, _matched = minions.publish(local, sorted(left), "test.ping", (), None, wait_s)
    tag, end, said = f"salt/job/{jid}/ret/", time.monotonic() + wait_s, set[str]()
    while said != left and (rest_s := end - time.monotonic()) > 0:
        event = local.event.get_event(wait=rest_s, tag=tag, full=True)
        if event is not None:
            said |= left & {event["tag"].removeprefix(tag)}
    if not cloud.opts.get("job_cache", True) or cloud.opts.get("ext_job_cache"):
        return said
    stored, end = set[str](), time.monotonic() + _STORED_S
    while stored != said and time.monotonic() < end:
        stored = said & (local.get_cache_returns(jid) or {}).keys()
        time.sleep(0.05 if stored != said else 0)
    return stored
