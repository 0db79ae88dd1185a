"""Wait for the minions of new VMs."""

import itertools
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc import unsignedreplies
from saltvirt.cluster.rpc.hostcommands import HostCommandFailed
from saltvirt.cluster.rpc.unsignedreplies import Pings
from saltvirt.core import terminal
from saltvirt.core.errors import VirtError
from saltvirt.core.options.config import MasterSettings
from saltvirt.core.salt import threads
from saltvirt.placement.answers import HostInfo
from saltvirt.seeding.shared import minionpackages
from saltvirt.vm.create.master.vmrequest import VmRequest
from saltvirt.vm.guest.master import reachvm

# A distribution's image boots and installs its minion in a minute or two with KVM, and in five or
# ten if the processor is emulated.
_WAIT_S, _EMULATED_S = 300, 1200
# Seconds between reads of the console, and how much of its last line is shown.
_CONSOLE_S, _CONSOLE_CHARS = 30, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitLimit:
    """How long to wait for a minion, in seconds; ``reason`` explains a long default."""

    wait_s: int
    reason: str = ""


def find_wait_limit(settings: MasterSettings, request: VmRequest, info: HostInfo) -> WaitLimit:
    """
    Return how long to wait: by the call, else by the master, else by the host's needs.

    info
        The answer of the VM's host.
    """
    wait_s = request.terms.wait_s
    explicit_s = settings.wait_s if wait_s is None else wait_s
    if explicit_s is not None:
        return WaitLimit(wait_s=explicit_s)
    if (request.requirements.domain_type or info.domain_types.default) == "qemu":
        return WaitLimit(wait_s=_EMULATED_S, reason="its host has no KVM and emulates it")
    return WaitLimit(wait_s=_WAIT_S)


def refuse_unproved(
    opts: Mapping[str, Any], requests: Iterable[VmRequest], answers: Mapping[str, HostInfo]
) -> None:
    """
    Raise MasterError if a VM gets a minion that this master cannot tell from others.

    answers
        Those of the hosts that may build the VMs.
    """
    if any(
        request.terms.wait and request.starts and request.is_seeded(info)
        for request in requests
        for info in answers.values()
    ):
        unsignedreplies.refuse_unproved(opts)


def wait_for_start(cloud: Cloud, name: str, *, wait_s: float, every_s: float = 5) -> float | None:
    """
    Return the seconds until a new minion answers; None if the wait ends without an answer.

    The master pings the minion on its start event, and at intervals in case the event was missed.
    """
    begin = time.monotonic()
    with cloud.client() as local:
        pings = Pings(local, cloud, every_s)
        while time.monotonic() - begin < wait_s:
            if pings.answered([name], now=pings.has_started(name)):
                return round(time.monotonic() - begin, 1)
            if cloud.while_waiting is not None and not cloud.while_waiting():
                return None
    return None


class _Console:
    """
    A VM's console, read during the wait for the VM's minion.

    has_no_minion
        The guest reports on the console that it has no minion and cannot install one.
    """

    def __init__(self, cloud: Cloud, host: str, name: str) -> None:
        self._cloud, self._host, self._name = cloud, host, name
        self._begun = self._looked = time.monotonic()
        self.has_no_minion = False

    def __call__(self) -> bool:
        """Show the last line every 30 s; return whether a minion may still come."""
        now = time.monotonic()
        if now - self._looked < _CONSOLE_S:
            return True
        lines = reachvm.console_lines(self._cloud, self._host, self._name)
        # The interval starts now: an unresponsive host has cost a timeout.
        self._looked = time.monotonic()
        self.has_no_minion = _says_no_minion(lines)
        if self.has_no_minion:
            return False
        last_line = _last_line(lines)
        console_text = f"; its console: {last_line}" if last_line else ""
        self._cloud.progress("Waiting", detail=f"{now - self._begun:.0f} s so far{console_text}")
        return True


def _says_no_minion(lines: Iterable[str]) -> bool:
    return any(minionpackages.NO_MINION in line for line in lines)


def _last_line(lines: Sequence[str]) -> str:
    """Return the last line of a console that is not empty, as one short line."""
    last_line = next((line for line in reversed(lines) if line), "")
    return terminal.one_line(last_line, _CONSOLE_CHARS) if last_line else ""


def _interrupted_error(reason: str, name: str, host: str) -> HostCommandFailed:
    return HostCommandFailed(
        f"{reason}: VM {name!r} runs on {host} and keeps its key; its minion was not waited for "
        f"any longer; see: salt {name} test.ping; remove it: salt-run virt.purge {name}"
    )


def wait_for_minion(
    cloud: Cloud, name: str, host: str, wait_limit: WaitLimit, extra_entries: Mapping[str, Any]
) -> dict[str, Any]:
    """
    Return ``{"minion", "seconds"}`` once a VM's minion answers, or raise an error with remedies.

    extra_entries
        Further entries of the error's table.
    """
    reason_text = f"; {wait_limit.reason}" if wait_limit.reason else ""
    cloud.progress("Waiting", detail=f"for its minion, at most {wait_limit.wait_s} s{reason_text}")
    console = _Console(cloud, host, name)
    try:
        seconds = wait_for_start(
            replace(cloud, while_waiting=console), name, wait_s=wait_limit.wait_s
        )
    except (KeyboardInterrupt, SystemExit):
        raise _interrupted_error("interrupted", name, host) from None
    except VirtError as failed:
        raise _interrupted_error(str(failed), name, host) from failed
    if console.has_no_minion:
        raise _add_details(cloud, name, host, _no_minion_error(name, host), extra_entries)
    if seconds is not None:
        return {"minion": "answers", "seconds": seconds}
    error = HostCommandFailed(
        f"VM {name!r} runs on {host} and keeps its key, but its minion does not answer after "
        f"{wait_limit.wait_s} s; it may still come: salt {name} test.ping; its console says how "
        f"far it is: salt-run virt.console_log {name}; wait longer with wait_s= of virt.init, or "
        f"virt:wait_s of the master; remove it: salt-run virt.purge {name}"
    )
    raise _add_details(cloud, name, host, error, extra_entries)


def _no_minion_error(name: str, host: str) -> HostCommandFailed:
    return HostCommandFailed(
        f"VM {name!r} runs on {host} and keeps its key, but {describe_no_minion(name, host)}"
    )


def describe_no_minion(name: str, host: str) -> str:
    """Return what the guest of a VM without a minion says, and what to do."""
    return (
        f"its guest says that there is no salt-minion in its image and that its package manager "
        f"cannot install one; remove it: salt-run virt.purge {name}; have the next one get a "
        f"minion: {minionpackages.COMMAND}, and no seed_method=nocloud, nor such a "
        f"virt:seed:method of {host}, by which it looks into no image; or use an image that has one"
    )


def _add_details(
    cloud: Cloud, name: str, host: str, error: HostCommandFailed, extra_entries: Mapping[str, Any]
) -> HostCommandFailed:
    """Return the error with a table: the VM's addresses and the end of its console."""
    access_entries = reachvm.find_login(cloud, host, name, has_minion=False)
    error.table = {**access_entries, **reachvm.console(cloud, host, name), **extra_entries}
    return error


# How often unresponsive minions are pinged.
_EVERY_S = 5
# How many consoles of many VMs are read at a time: each is a question to a host.
_CONSOLES_AT_ONCE = 16


class Consoles:
    """
    The consoles of many VMs. Every 30 s a few of them are read, in turn.

    without_minion
        The VMs with a guest that reports that it has no minion and cannot install one.
    """

    def __init__(self, cloud: Cloud, hosts_by_name: Mapping[str, str]) -> None:
        self._cloud, self._hosts = cloud, dict(hosts_by_name)
        self._waiting_names = deque(sorted(hosts_by_name))
        self._begun = time.monotonic()
        self._next = self._begun + _CONSOLE_S
        self.without_minion: set[str] = set()

    def look(self, pending: Collection[str]) -> None:
        """Read the next consoles of the pending VMs, if it is time, and show one last line."""
        now = time.monotonic()
        if now < self._next or not pending:
            return
        names = self._take_names(pending)
        # Several threads read, and only this one shows progress.
        quiet_cloud = replace(self._cloud, progress=lambda *_args, **_figures: None)
        with ThreadPoolExecutor(len(names)) as pool:
            jobs = {
                name: threads.begin(
                    pool, reachvm.console_lines, quiet_cloud, self._hosts[name], name
                )
                for name in names
            }
            lines_by_name = {name: job.result() for name, job in jobs.items()}
        names_without = {n for n, lines in lines_by_name.items() if _says_no_minion(lines)}
        self.without_minion |= names_without
        # VMs of one call mostly have one image: the others are read at once, too.
        self._next = time.monotonic() + (0 if names_without else _CONSOLE_S)
        self._show(now, lines_by_name, len(set(pending) - names_without))

    def _take_names(self, pending: Collection[str]) -> list[str]:
        """Return the names that are next, and move them to the end."""
        self._waiting_names = deque(name for name in self._waiting_names if name in pending)
        names = list(itertools.islice(self._waiting_names, _CONSOLES_AT_ONCE))
        self._waiting_names.rotate(-len(names))
        return names

    def _show(self, now: float, lines_by_name: Mapping[str, list[str]], count: int) -> None:
        last_lines = {name: _last_line(lines) for name, lines in lines_by_name.items()}
        console_text = next(
            (f"; console of {name}: {line}" for name, line in last_lines.items() if line), ""
        )
        minions_text = terminal.count_text(count, "minion")
        self._cloud.progress(
            "Waiting",
            detail=f"for {minions_text} more, {now - self._begun:.0f} s so far{console_text}",
        )


def wait_for_minions(
    cloud: Cloud,
    deadlines: Mapping[str, float],
    out: dict[str, float],
    every_s: float = _EVERY_S,
    consoles: Consoles | None = None,
) -> None:
    """
    Wait for each minion until its deadline, or until its guest reports that it has none.

    deadlines
        ``{minion: deadline}``, by the monotonic clock.
    out
        Gets ``{minion: when it answered}`` at once, so that an interrupted wait loses nothing.
    consoles
        The VMs' consoles, which are read meanwhile. Defaults to none.
    """
    hopeless: Collection[str] = consoles.without_minion if consoles else ()
    with cloud.client() as local:
        pings = Pings(local, cloud, every_s)
        while pending := {
            minion
            for minion, deadline in deadlines.items()
            if minion not in out and minion not in hopeless and deadline > time.monotonic()
        }:
            begun = time.monotonic()
            answered = pings.answered(pending)
            out |= dict.fromkeys(answered, time.monotonic())
            if consoles is not None:
                consoles.look(pending - answered)
            if answered != pending:
                time.sleep(max(0.0, begun + every_s - time.monotonic()))
