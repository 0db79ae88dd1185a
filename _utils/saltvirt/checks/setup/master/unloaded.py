"""Judge hosts without a usable answer by Salt's own reply and the cached grains."""

import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import salt.client

from saltvirt.checks.engine import Checks, HostFailure, unchecked
from saltvirt.checks.setup.master.hostchecks import bad_option
from saltvirt.checks.setup.master.masterchecks import is_old
from saltvirt.checks.setup.master.setupcloud import FUN, NEEDED, SetupCloud
from saltvirt.checks.setup.setupanswer import SetupFacts
from saltvirt.cluster.cloud import Cloud
from saltvirt.core import terminal
from saltvirt.core.errors import BadConfig, MasterError
from saltvirt.core.findings import NO_ANSWER, Finding, apply_command

# Our modules' message on a minion without libvirt's Python module.
_NO_BINDING = "the Python module 'libvirt' is missing"
# Salt's messages about a function that is not loaded.
_NOT_LOADED = ("is not available", "__virtual__ returned False")
_OLDEST_PYTHON = (3, 10)

CHECKS: Checks[SetupCloud, SetupFacts] = Checks()


@CHECKS.cloud("silent", "python", "modules", "packages", level=NEEDED)
def _failures(cloud: SetupCloud) -> Iterator[Finding]:
    for host, failure in sorted(cloud.failures.items()):
        yield _judge_failure(host, failure, cloud)


def _judge_failure(host: str, failure: HostFailure, cloud: SetupCloud) -> Finding:
    reason, is_synced = failure.reason, cloud.master.is_synced
    if isinstance(failure.refusal, BadConfig):
        return bad_option(host, failure.text)
    if failure.refusal is not None:
        return unchecked(host, failure.text, FUN)
    if failure.is_missing:
        reply, grains = cloud.unsigned_replies.get(host), cloud.grains[host]
        return explain(host, reason, reply, grains, is_synced=is_synced)
    return explain(host, reason, reason, {}, is_synced=is_synced)


def explain(
    host: str, reason: str | None, reply: str | None, grains: Mapping[str, Any], *, is_synced: bool
) -> Finding:
    """
    Return the finding about a host without a usable answer.

    reason
        Why its signed answer cannot be used: another release, or a forgery.
    reply
        Its reply in Salt's words, unsigned unless it equals ``reason``; None if it is unresponsive.
    grains
        Its cached grains; any may be missing.
    is_synced
        Whether minions get this project by the file server, and not by pip.
    """
    name = shlex.quote(host)
    if reply is None:
        return Finding(
            f"it {NO_ANSWER}",
            f"on {host}: systemctl restart salt-minion; then salt {name} test.ping",
            where=host,
        )
    if _NO_BINDING in reply:
        return Finding(
            "libvirt's Python module is missing there, so virt is not loaded",
            apply_command(host, "hypervisor.packages"),
            check="packages",
            where=host,
        )
    if reply != reason:  # unsigned: any minion may have sent it
        reply = f"in its name, not proved: {reply}"
    if not any(words in reply for words in _NOT_LOADED):
        return unchecked(host, reason or reply, FUN)
    return _explain_not_loaded(host, reply, grains, is_synced=is_synced)


def _explain_not_loaded(
    host: str, reply: str, grains: Mapping[str, Any], *, is_synced: bool
) -> Finding:
    name = shlex.quote(host)
    if is_old(grains.get("saltversion", "")):
        return Finding(
            f"its Salt is {grains['saltversion']}, too old for this project",
            f"update salt-minion on {host} to the release of the master",
            check="salt-release",
            where=host,
        )
    python = _parse_version(grains.get("pythonversion"))
    if python and python < _OLDEST_PYTHON:
        return Finding(
            f"its minion runs on Python {python[0]}.{python[1]}; this project needs 3.10",
            f"install Salt's own packages (onedir), which bring their Python, on {host}",
            check="python",
            where=host,
        )
    return Finding(
        f"this project's modules are missing there, or are of another release: {reply}",
        f"salt {name} saltutil.sync_all"
        if is_synced
        else f"on {host}: salt-pip install '.[hypervisor]', then systemctl restart salt-minion",
        check="modules",
        where=host,
    )


def _parse_version(grain: object) -> tuple[int, int] | None:
    numbers = grain[:2] if isinstance(grain, list | tuple) else []
    match numbers:
        case [int() as first, int() as second]:
            return first, second
    return None


_EVERY_S = 0.1
# Shown characters of a minion's reply.
_LONGEST = 300


def unsigned_answers(
    cloud: Cloud, hosts: Iterable[str], fun: str, timeout_s: float
) -> dict[str, str]:
    """
    Return hosts' replies to one call as single lines; unresponsive hosts are left out.

    They come from the master's job cache, and not from the bus, where any minion can pose as
    another. They are no proof: a minion that acts as a syndic can have replies stored for others.
    """
    host_ids = sorted(hosts)
    if not host_ids:
        return {}
    with cloud.client() as local:
        job = local.pub(host_ids, fun, (), tgt_type="list", timeout=timeout_s)
        if not job or "jid" not in job:
            raise MasterError(f"the Salt master did not send {fun}: it refused the job")
        returns = _wait_for_returns(local, job["jid"], set(job.get("minions") or ()), timeout_s)
    return {host: one_line(returns[host].get("ret")) for host in host_ids if host in returns}


def _wait_for_returns(
    local: salt.client.LocalClient, jid: str, host_ids: set[str], timeout_s: float
) -> dict[str, Any]:
    end = time.monotonic() + timeout_s
    while True:
        returns: dict[str, Any] = local.get_cache_returns(jid) or {}
        if host_ids <= returns.keys() or time.monotonic() > end:
            return returns
        time.sleep(_EVERY_S)


def one_line(value: object) -> str:
    """Return a minion's reply as text that no terminal obeys."""
    return terminal.one_line(str(value), _LONGEST)
