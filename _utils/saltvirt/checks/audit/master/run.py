"""Audit a cloud: read the master's facts, ask all hosts once, judge the answers."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from saltvirt.cells import cellstatus
from saltvirt.checks.audit.auditanswer import HostAudit
from saltvirt.checks.audit.master import cellchecks, hostchecks, masterchecks, masterfacts
from saltvirt.cluster import membership
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.cluster.rpc import minions
from saltvirt.cluster.rpc.unresponsive import Wait
from saltvirt.core import wire
from saltvirt.core.errors import VirtError
from saltvirt.core.findings import Finding, table

FUN = "virt.audit"


class FallsShort(VirtError):
    """A cloud falls short of docs/security.md; :attr:`table` has the findings."""


def audit(cloud: Cloud, now: datetime) -> dict[str, Any]:
    """
    Return ``{"findings": [], "checked": [host]}``; raise :class:`FallsShort` for any finding.

    All allowed hosts are asked, even if a VM has such a name, which is a finding.
    """
    hosts = inventory.allowed_hosts(cloud)
    replies = minions.ask(cloud, hosts, FUN, wait=Wait.brief(hosts))
    findings, answers = [], {}
    for host, reply in replies.items():
        answer = _read_answer(host, reply)
        if isinstance(answer, Finding):
            findings.append(answer)
        else:
            answers[host] = answer
    findings += _judge(cloud, answers, now)
    findings += cellchecks.findings(cellstatus.faults(cloud.opts, cloud.settings))
    out = table(findings, answers)
    if findings:
        count = f"{len(findings)} things fall" if len(findings) > 1 else "1 thing falls"
        error = FallsShort(f"{count} short of docs/security.md; each is named with its fix")
        error.table = out
        raise error
    return out


def _read_answer(host: str, reply: minions.Reply) -> Any:
    """Return a host's answer, or the finding that the host could not be checked."""
    if not reply.ok:
        return hostchecks.describe_unresponsive_host(host, reply.reason)
    try:
        return wire.read(host, FUN, HostAudit, reply.value)
    except wire.BadAnswer as error:
        return hostchecks.describe_unresponsive_host(host, str(error))


def _judge(cloud: Cloud, answers: Mapping[str, HostAudit], now: datetime) -> list[Finding]:
    members, opts = cloud.members, cloud.opts
    baseline = masterfacts.read_baseline(opts, now)
    out = list(masterchecks.findings(masterfacts.read_facts(opts, members, now)))
    hosts_by_guest = membership.find_guests(
        members, {host: facts.vms for host, facts in answers.items()}
    )
    noted_hosts_by_guest = membership.find_last_seen_guests(
        opts, members, set(inventory.allowed_hosts(cloud)) - set(answers)
    )
    out += hostchecks.find_guests_like_hosts(members, {**noted_hosts_by_guest, **hosts_by_guest})
    for host, facts in answers.items():
        out += _judge_host(host, facts, baseline)
    return out


def _judge_host(host: str, facts: HostAudit, baseline: masterfacts.Baseline) -> Iterator[Finding]:
    try:
        yield from list(hostchecks.findings(host, facts, baseline))
    except hostchecks.ImpossibleTime as error:
        yield hostchecks.describe_unresponsive_host(host, str(error))
