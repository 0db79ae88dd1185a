"""Find leftovers by two looks at a cloud, and mend them on request."""

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from saltvirt.checks.doctor.doctoranswer import DoctorFacts
from saltvirt.checks.doctor.master import hostchecks, masterchecks, masterfacts, mend
from saltvirt.checks.doctor.master.leftover import CloudFacts, Leftover
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.cluster.rpc import minions
from saltvirt.cluster.rpc.unresponsive import Wait
from saltvirt.core import arguments, wire
from saltvirt.core.errors import VirtError

FUN = "virt.doctor_facts"
# The pause between looks, in which work in progress changes its place or record; and how many
# more looks there may be, while different hosts answer.
_PAUSE_S, _MAX_REPEATS = 2, 3
_NOT_CHECKED = "not-checked"


class LeftoversFound(VirtError):
    """There are leftovers; :attr:`table` has them, and what was mended."""


def doctor(cloud: Cloud, now: datetime, *, fix: object = False) -> dict[str, Any]:
    """
    Return ``{"findings": [], "checked": [host], "mended": []}`` of a cloud without leftovers.

    fix
        Mend what both looks find. Defaults to False.

    Raises :class:`LeftoversFound` if any leftovers remain, or mending fails.
    """
    is_fixing = arguments.boolean("fix", fix)
    cloud.progress("Looking", detail="at the master and all hosts")
    cloud_facts, leftovers = _look_twice(cloud, now)
    successes: list[str] = []
    failures: list[str] = []
    if is_fixing and leftovers:
        for leftover in leftovers:
            if leftover.does:
                cloud.progress(
                    "Mending", detail=f"{leftover.where}: {leftover.what}; {leftover.does}"
                )
        successes, failures = mend.mend(cloud, leftovers, now)
        cloud_facts, leftovers = _look_twice(cloud, now)
    out = {
        "findings": [_as_row(leftover) for leftover in leftovers],
        "checked": sorted(cloud_facts.hosts),
        "mended": successes,
        **({"failed": failures} if failures else {}),
    }
    if leftovers or failures:
        count = f"{len(leftovers)} things are" if len(leftovers) != 1 else "1 thing is"
        error = LeftoversFound(
            "; ".join([f"{count} left over; each is named with its fix", *failures])
        )
        error.table = out
        raise error
    return {**out, "ready": _ready_text(successes)}


def _ready_text(successes: list[str]) -> str:
    if not successes:
        return "nothing is left over"
    return "; ".join([*successes, "now nothing is left over"])


def _as_row(leftover: Leftover) -> dict[str, Any]:
    return {key: value for key, value in asdict(leftover).items() if key != "does"}


def _look_twice(cloud: Cloud, now: datetime) -> tuple[CloudFacts, list[Leftover]]:
    """
    Return the facts of the last look, and the leftovers that two looks have found.

    Without leftovers one look is enough. Little is judged while a host is unresponsive: two looks
    at different hosts would find nothing in common, so both need answers of the same hosts.
    """
    cloud_facts = _read_cloud(cloud, now)
    leftovers = list(_judge(cloud_facts))
    if not leftovers:
        return cloud_facts, leftovers
    for _repeat in range(_MAX_REPEATS):
        time.sleep(_PAUSE_S)
        earlier_facts, cloud_facts = cloud_facts, _read_cloud(cloud, now)
        leftovers = _find_confirmed(earlier_facts, cloud_facts)
        if earlier_facts.hosts.keys() == cloud_facts.hosts.keys():
            break
    return cloud_facts, leftovers


def _find_confirmed(earlier_facts: CloudFacts, cloud_facts: CloudFacts) -> list[Leftover]:
    """Return the leftovers found at both looks, and hosts that either could not check."""
    earlier_by_key = {_key(leftover): leftover for leftover in _judge(earlier_facts)}
    last_leftovers = list(_judge(cloud_facts))
    confirmed_leftovers = [
        leftover
        for leftover in last_leftovers
        if _key(leftover) in earlier_by_key or leftover.check == _NOT_CHECKED
    ]
    confirmed_keys = {_key(leftover) for leftover in confirmed_leftovers}
    unconfirmed_leftovers = (
        leftover for key, leftover in earlier_by_key.items() if key not in confirmed_keys
    )
    return confirmed_leftovers + [
        leftover for leftover in unconfirmed_leftovers if leftover.check == _NOT_CHECKED
    ]


def _key(leftover: Leftover) -> tuple[str, str, str]:
    return leftover.check, leftover.where, leftover.subject


def _read_cloud(cloud: Cloud, now: datetime) -> CloudFacts:
    # Before asking hosts: a command that ends meanwhile still counts.
    busy_vms = masterfacts.find_busy_vms(cloud.opts)
    allowed_hosts = inventory.allowed_hosts(cloud)
    replies = minions.ask(cloud, allowed_hosts, FUN, wait=Wait.brief(allowed_hosts))
    facts_by_host, reasons_by_host = {}, {}
    for host, reply in replies.items():
        try:
            if reply.ok:
                facts_by_host[host] = wire.read(host, FUN, DoctorFacts, reply.value)
            else:
                reasons_by_host[host] = reply.reason
        except wire.BadAnswer as error:
            reasons_by_host[host] = str(error)
    master = masterfacts.read_facts(cloud, list(facts_by_host), now)
    master = replace(master, at_work=busy_vms | master.at_work)
    cloud_facts = CloudFacts(master=master, hosts=facts_by_host, silent=reasons_by_host)
    unneeded_keys = [
        name for name in master.noted if not masterchecks.is_key_needed(name, cloud_facts)
    ]
    answering_minions = masterfacts.find_answering_minions(cloud, unneeded_keys)
    return replace(cloud_facts, master=replace(master, answering=answering_minions))


def _judge(cloud_facts: CloudFacts) -> Iterator[Leftover]:
    yield from masterchecks.findings(cloud_facts)
    for host, reason in sorted(cloud_facts.silent.items()):
        yield hostchecks.describe_unresponsive_host(host, reason)
    for host, names in sorted(cloud_facts.master.hints.items()):
        if host not in cloud_facts.hosts and host not in cloud_facts.silent:
            yield hostchecks.describe_remembered_host(host, names)
    for host in sorted(cloud_facts.hosts):
        yield from hostchecks.findings(host, cloud_facts)
