"""
How long to wait for unresponsive hosts, and since when each is unresponsive.

A command that only reads waits for such a host at most two seconds longer than for the others; a
command that changes something waits once for ``virt:timeout_s``. A file in the master's cache has
since when each host is unresponsive.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saltvirt.cluster.progress import format_s
from saltvirt.core import terminal
from saltvirt.core.jsonfile import JsonFile

# After so long an unresponsive host is awaited again, briefly: it may be back.
_ANEW_S = 60
# How many hosts a line names.
_MOST = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """
    Hosts with a shorter wait in a survey; an answer that comes counts all the same.

    briefly
        Hosts given up when no host has replied for a while, unless they report the job as running.
    not_at_all
        Hosts that were unresponsive to this command before.
    """

    briefly: frozenset[str] = field(default_factory=frozenset)
    not_at_all: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def brief(cls, hosts: Iterable[str]) -> "Wait":
        """Return a wait for no host longer than that of a command that only reads."""
        return cls(briefly=frozenset(hosts))


class Silence:
    """The hosts that did not answer one command, which may ask from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: dict[str, float] = {}
        self._reported: set[str] = set()

    def record(self, asked_hosts: Iterable[str], unresponsive: Collection[str]) -> set[str]:
        """Record which hosts timed out; return those that timed out for the first time."""
        now = time.monotonic()
        with self._lock:
            # A host that was not awaited now keeps its former time.
            before = {h: at for h, at in self._since.items() if now - at <= _ANEW_S}
            for host in asked_hosts:
                self._since.pop(host, None)
            self._since |= {host: before.get(host, now) for host in unresponsive}
            newly_unresponsive = set(unresponsive) - self._reported
            self._reported |= newly_unresponsive
        return newly_unresponsive

    def hosts(self) -> tuple[set[str], set[str]]:
        """Return the hosts that timed out just now, and those that timed out some time ago."""
        now = time.monotonic()
        with self._lock:
            late = {host for host, at in self._since.items() if now - at > _ANEW_S}
            return set(self._since) - late, late


def choose_wait(
    hosts: Collection[str],
    silence: Silence,
    concerned: Collection[str] | None,
    *,
    is_reading: bool,
) -> Wait:
    """Return how long :func:`saltvirt.cluster.inventory.inventory.survey` awaits hosts."""
    now, before = silence.hosts()
    patient = set(concerned or ())
    briefly = set(hosts) if is_reading or concerned is not None else before
    return Wait(briefly=frozenset(briefly - patient - now), not_at_all=frozenset(now - patient))


def silence_line(
    count: int, unresponsive: Collection[str], since: Mapping[str, float], now: float
) -> str:
    """Return one line that names the unresponsive hosts, and for how long they have been so."""

    def named(host: str) -> str:
        long_s = int(now - since.get(host, now))
        return f"{host} (for {format_s(long_s)})" if long_s > 0 else host

    names = terminal.join_some(map(named, sorted(unresponsive)), _MOST)
    return f"{count - len(unresponsive):,} of {count:,} answered; silent: {names}"


def describe_waiting(hosts: Collection[str], at_most_s: float) -> str:
    """Return which hosts are awaited, and how long at most."""
    return (
        f"for {terminal.join_some(sorted(hosts), _MOST)}, at most {format_s(round(at_most_s))} more"
    )


def silent_since(opts: Mapping[str, Any]) -> dict[str, float]:
    """Return ``{host: time}`` since when it is unresponsive, in seconds since 1970."""
    return _file(opts).read()


def add_durations(opts: Mapping[str, Any], reasons: Mapping[str, str]) -> dict[str, str]:
    """Return ``{host: reason}``, with how long each unresponsive host has been so."""
    if not reasons:
        return {}
    since, now = _file(opts).read(), time.time()
    long_s = {host: int(now - since[host]) for host in reasons if host in since}
    return {
        host: f"{reason}, for {format_s(long_s[host])}" if long_s.get(host, 0) > 0 else reason
        for host, reason in reasons.items()
    }


def record_silence(
    opts: Mapping[str, Any],
    asked_hosts: Iterable[str],
    unresponsive: Collection[str],
    is_host: Callable[[str], bool],
) -> dict[str, float]:
    """
    Record which hosts answered and which did not; return ``{host: unresponsive since}``.

    The times are those of the first timeout, in seconds since 1970. Ids that are no hosts any more
    are dropped. Nothing is written while nothing changes.
    """
    answered_hosts = set(asked_hosts).difference(unresponsive)

    now = time.time()

    def change(since_by_host: Mapping[str, float]) -> dict[str, float]:
        out = {
            host: at
            for host, at in since_by_host.items()
            if host not in answered_hosts and is_host(host)
        }
        return {**dict.fromkeys(unresponsive, now), **out}

    return _file(opts).change(change)


def _file(opts: Mapping[str, Any]) -> JsonFile[dict[str, float]]:
    return JsonFile(
        path=Path(opts["cachedir"]) / "salt-virt" / "silent.json",
        parse=lambda content: {str(host): float(at) for host, at in content["since"].items()},
        plain=lambda since_by_host: {"since": since_by_host},
        empty=dict,
    )
