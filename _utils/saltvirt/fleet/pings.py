"""Ask minions that may be slow whether they answer; a late answer counts like a prompt one."""

import time
from collections.abc import Iterable
from typing import Any

from saltvirt.fleet import minions
from saltvirt.fleet.cloud import Cloud

# How long after its event an answer is in the master's job cache at the latest.
_STORED_S = 2
# Who has been silent for long is asked again after a tenth of that, and at least this often: each
# ping is a process in a guest that has not done the last one yet.
_PART, _LONGEST_S = 10, 60


class Pings:
    """
    The pings of one wait.

    Whoever fires an event in a minion's name is not believed: the master stores what a minion
    itself has returned, and that alone. A master without a job cache of its own cannot tell the two
    apart.
    """

    def __init__(self, local: Any, cloud: Cloud, every_s: float) -> None:
        self._local, self._opts, self._cloud = local, cloud.opts, cloud
        self._every_s, self._begun = every_s, time.monotonic()
        self._sent: list[str] = []
        self._next = 0.0

    def answered(self, wanted: Iterable[str], *, now: bool = False) -> set[str]:
        """
        Return which minions have answered, to this ping or to one before.

        now
            Ping them whenever the last ping was: they have just started.
        """
        left, begun = set(wanted), time.monotonic()
        if now or begun >= self._next:
            jid, _matched = minions.publish(
                self._local, sorted(left), "test.ping", (), None, self._every_s
            )
            self._sent.append(jid)
            waited_s = begun - self._begun
            self._next = begun + min(max(self._every_s, waited_s / _PART), _LONGEST_S)
        said = self._heard(left, begun + self._every_s)
        if not self._opts.get("job_cache", True) or self._opts.get("ext_job_cache"):
            return said
        return self._stored(left, said)

    def _heard(self, left: set[str], end: float) -> set[str]:
        said = set[str]()
        while said != left and (rest_s := end - time.monotonic()) > 0:
            event = self._local.event.get_event(wait=rest_s, tag="salt/job/", full=True)
            parts = event["tag"].split("/") if event else []
            if len(parts) == 5 and parts[2] in self._sent and parts[3] == "ret":
                said |= left & {parts[4]}
        return said

    def _stored(self, left: set[str], said: set[str]) -> set[str]:
        end = time.monotonic() + _STORED_S
        while True:
            every = [self._local.get_cache_returns(jid) or {} for jid in self._sent]
            stored = left & {minion for one in every for minion in one}
            if stored >= said or time.monotonic() >= end:
                return stored
            time.sleep(0.05)
