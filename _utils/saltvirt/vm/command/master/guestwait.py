"""
Wait until guests have obeyed a request to shut down.

All hosts of the guests are asked at once, by a bulk question, until each guest has obeyed or its
time is over.
"""

import shlex
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, presence
from saltvirt.core import terminal
from saltvirt.core.errors import VirtError

# Seconds between two questions: the shortest, the longest, and the part of the time so far.
_LEAST_S, _MOST_S, _PART = 1.0, 5.0, 0.1
# Seconds between two lines of progress.
_PROGRESS_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a guest was asked: on which host, and when by the monotonic clock."""

    host: str
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What has become of a request: ``outcome`` if the guest has obeyed, else ``error``."""

    outcome: str | None = None
    error: str | None = None


def wait_for_guests(
    cloud: Cloud, requests: Mapping[str, Request], awaited_state: str, limit_s: float
) -> dict[str, Ending]:
    """
    Return how each request has ended; ``requests`` has them by the names of the VMs.

    awaited_state
        The state of a VM after its guest has obeyed.
    limit_s
        How long each guest is waited for. All are looked at once more after that.

    Ctrl-C ends the wait; the guests that have not obeyed by then have an error that says so.
    """
    out: dict[str, Ending] = {}
    begun_s = shown_s = time.monotonic()
    _show(cloud, requests, limit_s, 0)
    try:
        while pending := {name: r for name, r in requests.items() if name not in out}:
            # The time is that before the question: a guest gets all of its seconds.
            asked_s = time.monotonic()
            out |= _look(cloud, pending, awaited_state, asked_s, limit_s)
            if len(out) == len(requests):
                break
            if asked_s - shown_s >= _PROGRESS_S:
                shown_s = asked_s
                _show(cloud, {*pending} - out.keys(), limit_s, asked_s - begun_s)
            time.sleep(min(_MOST_S, max(_LEAST_S, _PART * (asked_s - begun_s))))
    except (KeyboardInterrupt, SystemExit):
        out |= give_up(requests.keys() - out.keys())
    except VirtError as error:
        out |= give_up(requests.keys() - out.keys(), str(error))
    return out


def give_up(names: Iterable[str], reason: str = "the wait was interrupted") -> dict[str, Ending]:
    """Return the endings of requests that are not waited for any longer."""
    return {
        name: Ending(
            error=f"VM {name!r} was asked to shut down; {reason}; see: salt-run virt.vm_state "
            f"{shlex.quote(name)}"
        )
        for name in names
    }


def _show(cloud: Cloud, names: Collection[str], limit_s: float, seconds: float) -> None:
    guests_text = terminal.join_some(sorted(names))
    so_far = f"; {seconds:.0f} s so far" if seconds else ""
    cloud.progress("Waiting", detail=f"for {guests_text}, at most {limit_s:.0f} s{so_far}")


def _look(
    cloud: Cloud,
    pending: Mapping[str, Request],
    awaited_state: str,
    now_s: float,
    limit_s: float,
) -> dict[str, Ending]:
    """Ask the hosts of the pending requests; return those that have ended."""
    sight = _see(cloud, pending, awaited_state)
    out = {}
    for name, request in pending.items():
        seconds = max(now_s - request.time_s, 0)
        if name in sight.obeyed:
            out[name] = Ending(outcome=f"shut down after {seconds:.0f} s")
            continue
        reason = sight.final_reason(name, request.host)
        if reason is None and seconds >= limit_s:
            reason = sight.late_reason(name, request.host, limit_s)
        if reason is not None:
            out[name] = Ending(error=f"VM {name!r} {reason}")
    return out


def _see(cloud: Cloud, pending: Mapping[str, Request], awaited_state: str) -> "_Sight":
    """Ask the hosts of the pending requests about the VMs."""
    hosts = {request.host for request in pending.values()}
    survey = inventory.survey(cloud, hosts, "virt.vm_state", concerned_hosts=())
    states = {
        name: survey.answers[request.host].get(name)
        for name, request in pending.items()
        if request.host in survey.answers
    }
    off = {name for name, state in states.items() if state == awaited_state}
    moved_to = _find_moved(cloud, {name: pending[name].host for name in off})
    return _Sight(
        states=states, moved_to=moved_to, obeyed=off - moved_to.keys(), reasons=survey.reasons()
    )


def _find_moved(cloud: Cloud, hosts_by_name: Mapping[str, str]) -> dict[str, str]:
    """Return ``{name: its present host}`` of the VMs of which only definitions are left."""
    if not hosts_by_name:
        return {}
    hosts = {*hosts_by_name.values()}
    survey = inventory.survey(cloud, hosts, "virt.host_info", concerned_hosts=())
    out = {}
    for name, host in hosts_by_name.items():
        seen = presence.from_answers(survey.answers, name).get(host)
        if seen is not None and seen.moved_to is not None:
            out[name] = seen.moved_to
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sight:
    """
    What the hosts report of the VMs that are waited for.

    states
        Of the VMs on hosts that answer; None for a VM that its host does not have any more.
    moved_to
        ``{name: its present host}`` of the VMs of which only definitions are left.
    obeyed
        The VMs whose guests have obeyed.
    reasons
        ``{host: reason}`` of the hosts without an answer.
    """

    states: Mapping[str, str | None]
    moved_to: Mapping[str, str]
    obeyed: Collection[str]
    reasons: Mapping[str, str]

    def final_reason(self, name: str, host: str) -> str | None:
        """Return why a VM is not waited for any longer, None if it is."""
        typed = shlex.quote(name)
        if name in self.moved_to:
            return (
                f"has moved to {self.moved_to[name]} meanwhile; ask it again: salt-run "
                f"virt.shutdown {typed}"
            )
        if name not in self.states:
            return None
        if self.states[name] is None:
            return f"is not on {host} any more; see where it is: salt-run virt.find {typed}"
        if self.states[name] == "crashed":
            return f"has crashed, and is kept as it was then; end it: salt-run virt.stop {typed}"
        return None

    def late_reason(self, name: str, host: str, limit_s: float) -> str:
        """Return what is wrong with a VM that has not shut down in time."""
        typed = shlex.quote(name)
        pull = f"pull its plug: salt-run virt.stop {typed}"
        if name not in self.states:
            reason = self.reasons.get(host, "gives no answer")
            return (
                f"was asked to shut down, and its host is not heard of: {host}: {reason}; see: "
                f"salt-run virt.vm_state {typed}"
            )
        if self.states[name] == "paused":
            return (
                f"was paused meanwhile, so its guest cannot shut down; let it go on: salt-run "
                f"virt.resume {typed}; or {pull}"
            )
        return (
            f"is still running after {limit_s:.0f} s: its guest ignores the request, or was not "
            f"ready for it; ask again, or {pull}"
        )
