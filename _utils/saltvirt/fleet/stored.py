"""
What minions that sign nothing have returned, such as those in VMs.

Whoever fires an event in a minion's name is not believed: the master stores what a minion itself
has returned, and that alone. A master without a job cache of its own cannot tell the two apart.
"""

import time
from collections.abc import Collection, Mapping
from typing import Any

# How long after its event an answer is in the master's job cache at the latest.
STORED_S = 2


def is_kept(opts: Mapping[str, Any]) -> bool:
    """Return whether a master has a job cache of its own."""
    return bool(opts.get("job_cache", True)) and not opts.get("ext_job_cache")


def returns(local: Any, jids: Collection[str], said: set[str]) -> dict[str, Any]:
    """
    Return ``{minion: what the master has stored}`` of some jobs.

    said
        The minions by whose names there was an event: theirs is waited for.
    """
    end = time.monotonic() + STORED_S
    while True:
        out: dict[str, Any] = {}
        for jid in jids:
            out |= local.get_cache_returns(jid) or {}
        if out.keys() >= said or time.monotonic() >= end:
            return out
        time.sleep(0.05)
