"""Read replies of minions that sign nothing, such as those in VMs, and ping such minions."""

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc import eventbus, publishing
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


# The longer a minion is silent, the rarer the pings: a tenth of that time apart, at most 60 s. Each
# ping is a process in a guest that has not finished the last one yet.
_PART, _LONGEST_S = 10, 60


class Pings:
    """
    The pings of one wait; :mod:`saltvirt.cluster.rpc.unsignedreplies` defines what counts as a
    reply.
    """

    def __init__(self, local: Any, cloud: Cloud, every_s: float) -> None:
        self._local, self._opts = local, cloud.opts
        self._every_s, self._begun = every_s, time.monotonic()
        self._sent: list[str] = []
        self._answered = set[str]()
        self._next = 0.0

    def answered(self, minions: Iterable[str], *, now: bool = False) -> set[str]:
        """
        Return which minions have replied to this ping or to an earlier one.

        now
            Ping even shortly after the last ping: the minions have just started.
        """
        pending, begun = set(minions), time.monotonic()
        if now or begun >= self._next:
            jid, _matched = publishing.publish(
                self._local, sorted(pending), "test.ping", (), None, self._every_s
            )
            self._sent.append(jid)
            waited_s = begun - self._begun
            self._next = begun + min(max(self._every_s, waited_s / _PART), _LONGEST_S)
        answered_minions = self._await_replies(pending, begun + self._every_s)
        if is_kept(self._opts):
            answered_minions = (
                pending & read_returns(self._local, self._sent, answered_minions).keys()
            )
        return select_proved(self._opts, answered_minions)

    def has_started(self, name: str) -> bool:
        """Wait a while for a minion's start event; return whether it came."""
        end, tag = time.monotonic() + self._every_s, f"salt/minion/{name}/start"
        while (rest_s := end - time.monotonic()) > 0:
            event_tag = self._next_tag(rest_s)
            if event_tag in (tag, None):
                return event_tag == tag
        return False

    def _await_replies(self, pending: set[str], end: float) -> set[str]:
        while not pending <= self._answered and (rest_s := end - time.monotonic()) > 0:
            self._next_tag(rest_s)
        return pending & self._answered

    def _next_tag(self, rest_s: float) -> str | None:
        """Return the tag of the next event, or None; note replies to any of the pings."""
        event = eventbus.next_event(self._local.event, rest_s, "salt/")
        if event is None:
            return None
        tag: str = event["tag"]
        parts = tag.split("/")
        if len(parts) == 5 and parts[2] in self._sent and parts[3] == "ret":
            self._answered.add(parts[4])
        return tag
