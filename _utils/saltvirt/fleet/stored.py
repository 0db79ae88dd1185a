"""
What minions that sign nothing say, such as those in VMs.

Whoever fires an event in a minion's name is not believed. What the master has stored of a minion's
returns is better, and not enough: see :class:`saltvirt.compat.Grains`, which is a proof. A master
that keeps no such data cannot tell who has said something, so that nobody's word counts there.
"""

import time
from collections.abc import Collection, Mapping
from typing import Any

from saltvirt import compat
from saltvirt.errors import MasterError

# How long after its event an answer is in the master's job cache at the latest.
STORED_S = 2


def is_kept(opts: Mapping[str, Any]) -> bool:
    """Return whether a master has a job cache of its own."""
    return bool(opts.get("job_cache", True)) and not opts.get("ext_job_cache")


def read_returns(local: Any, jids: Collection[str], minions: set[str]) -> dict[str, Any]:
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
        if out.keys() >= minions or time.monotonic() >= end:
            return out
        time.sleep(0.05)


def refuse_unproved(opts: Mapping[str, Any]) -> None:
    """Raise MasterError if this master keeps nothing that proves who has answered."""
    if not opts.get("minion_data_cache", True):
        raise MasterError(
            "minion_data_cache is off, so that this master cannot tell whether a VM's own minion "
            "answers, or another guest in its name; set minion_data_cache: True in the master's "
            "configuration, then restart salt-master; or give wait=False"
        )


def select_proved(opts: Mapping[str, Any], minions: Collection[str]) -> set[str]:
    """Return which of these minions have been there since their keys were accepted."""
    grains = compat.Grains(opts) if minions else None
    return {minion for minion in minions if grains and grains.of(minion) is not None}
