"""Audit a cloud: read what there is, ask all hosts once, judge."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from saltvirt import wire
from saltvirt.errors import VirtError
from saltvirt.fleet import inventory, membership, minions
from saltvirt.fleet.audit import masterfacts, ofcells, ofhost, ofmaster
from saltvirt.fleet.cells import checking
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.findings import Finding, table
from saltvirt.fleet.silence import Wait
from saltvirt.placement.audited import HostAudit

FUN = "virt.audit"


class FallsShort(VirtError):
    """A cloud falls short of docs/security.md; :attr:`table` has the findings."""


def audit(cloud: Cloud, now: datetime) -> dict[str, Any]:
    """
    Return ``{"findings": [], "checked": [host]}``; raise :class:`FallsShort` if there are any.

    The hosts are those that are allowed, also if a VM has such a name: then that is found.
    """
    hosts = inventory.allowed(cloud)
    replies = minions.ask(cloud, hosts, FUN, wait=Wait.brief(hosts))
    found, answers = [], {}
    for host, reply in replies.items():
        answer = _read(host, reply)
        if isinstance(answer, Finding):
            found.append(answer)
        else:
            answers[host] = answer
    found += _judged(cloud, answers, now)
    found += ofcells.findings(checking.faults(cloud.opts, cloud.settings))
    out = table(found, answers)
    if found:
        count = f"{len(found)} things fall" if len(found) > 1 else "1 thing falls"
        error = FallsShort(f"{count} short of docs/security.md; each is named with its fix")
        error.table = out
        raise error
    return out


def _read(host: str, reply: minions.Reply) -> Any:
    """Return a host's answer, or what is to be said of one that gave none."""
    if not reply.ok:
        return ofhost.silent(host, reply.error or "it does not answer")
    try:
        return wire.read(host, FUN, HostAudit, reply.value)
    except wire.BadAnswer as error:
        return ofhost.silent(host, str(error))


def _judged(cloud: Cloud, answers: Mapping[str, HostAudit], now: datetime) -> list[Finding]:
    members, opts = cloud.members, cloud.opts
    known = masterfacts.known(opts, now)
    out = list(ofmaster.findings(masterfacts.of(opts, members, now)))
    there = membership.among(members, {host: facts.vms for host, facts in answers.items()})
    noted = membership.guests(opts, members, set(inventory.allowed(cloud)) - set(answers))
    out += ofhost.guests(members, {**noted, **there})
    for host, facts in answers.items():
        out += _of_host(host, facts, known)
    return out


def _of_host(host: str, facts: HostAudit, known: masterfacts.Known) -> Iterator[Finding]:
    try:
        yield from list(ofhost.findings(host, facts, known))
    except ofhost.NotUnderstood as error:
        yield ofhost.silent(host, str(error))
