"""
Replies of minions that sign nothing, such as those in VMs.

An event in a minion's name proves nothing. The master's stored returns of a minion are better, and
not enough: see :class:`saltvirt.core.salt.compat.Grains`, which is a proof. On a master that keeps
no such data no reply counts, as its sender is unknown.
"""

import time
from collections.abc import Collection, Mapping
from typing import Any

from saltvirt.core.errors import MasterError
from saltvirt.core.salt import compat

# How long after its event a reply is in the master's job cache at the latest.
STORED_S = 2


def is_kept(opts: Mapping[str, Any]) -> bool:
    """Return whether a master has a local job cache."""
    return bool(opts.get("job_cache", True)) and not opts.get("ext_job_cache")


def read_returns(local: Any, jids: Collection[str], minions: set[str]) -> dict[str, Any]:
    """
    Return ``{minion: stored return}`` of some jobs.

    minions
        The minions with an event: wait for their returns.
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
    """Raise MasterError if this master keeps nothing that proves which minion replied."""
    if not opts.get("minion_data_cache", True):
        raise MasterError(
            "minion_data_cache is off, so that this master cannot tell whether a VM's own minion "
            "answers, or another guest in its name; set minion_data_cache: True in the master's "
            "configuration, then restart salt-master; or give wait=False"
        )


def select_proved(opts: Mapping[str, Any], minions: Collection[str]) -> set[str]:
    """Return the minions that have sent grains since their keys were accepted."""
    grains = compat.Grains(opts) if minions else None
    return {minion for minion in minions if grains and grains.of(minion) is not None}
