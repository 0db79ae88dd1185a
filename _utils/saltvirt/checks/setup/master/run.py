"""Check a setup: read the master's facts, ask all hosts once, judge the answers."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import salt.utils.minions

from saltvirt.ca import policy
from saltvirt.cells import cellstatus
from saltvirt.checks.setup.master import (
    cellchecks,
    hostchecks,
    masterchecks,
    masterfacts,
    movechecks,
    unloaded,
    unsigned,
)
from saltvirt.checks.setup.master.gaps import NEEDED, Gap, sort_gaps
from saltvirt.checks.setup.setupanswer import SetupFacts
from saltvirt.cluster import candidates
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.cluster.rpc import minions
from saltvirt.cluster.rpc.unresponsive import Wait, silent_since
from saltvirt.core import filecontent, wire
from saltvirt.core.errors import VirtError
from saltvirt.core.findings import table

FUN = "virt.setup_facts"
READY = "nothing that VMs need is missing: salt-run virt.init NAME 1 512 IMAGE"
# More time: at its first check a host probes KVM, and tries to reach others.
_LONGER_S = 10


class Incomplete(VirtError):
    """Something that VMs need is missing; :attr:`table` names it."""


def check(cloud: Cloud, host_arguments: Sequence[object]) -> dict[str, Any]:
    """
    Return ``{"findings": [], "checked": [host], "ready": text}``.

    host_arguments
        The hosts to check, empty for all that are allowed. They also try to reach other hosts,
        through the firewalls of these.

    Raises :class:`Incomplete` if a gap prevents every deployment.
    """
    host_ids = sorted(
        {host_id for word in host_arguments for host_id in candidates.parse_ids(word)}
    )
    facts = masterfacts.read_facts(cloud.opts, cloud.members, host_ids)
    allowed_hosts = inventory.allowed_hosts(cloud)
    checked_hosts = [host for host in allowed_hosts if not host_ids or host in host_ids]
    addresses_by_host = _find_other_hosts(cloud, allowed_hosts, host_ids)
    gaps = list(masterchecks.gaps(facts))
    if not host_ids:
        gaps += cellchecks.gaps(cellstatus.faults(cloud.opts, cloud.settings))
    host_gaps, answers = _ask_hosts(
        cloud, checked_hosts, addresses_by_host, is_synced=facts.is_synced
    )
    gaps = sort_gaps([*gaps, *host_gaps, *movechecks.gaps(answers, addresses_by_host)])
    out = table(gaps, answers)
    needed_count = sum(gap.level == NEEDED for gap in gaps)
    if needed_count:
        count = f"{needed_count} things are" if needed_count > 1 else "1 thing is"
        error = Incomplete(f"{count} missing that VMs need; mend the first, then ask again")
        error.table = out
        raise error
    return {**out, "ready": READY}


def _find_other_hosts(
    cloud: Cloud, allowed_hosts: Iterable[str], named_hosts: Collection[str]
) -> dict[str, list[str]]:
    """
    Return ``{host: addresses}`` of the hosts that named hosts try to reach; empty without names.

    A host that was unresponsive when last asked is left out: no firewall makes it reachable.
    """
    silent_hosts = silent_since(cloud.opts) if named_hosts else {}
    other_hosts = [
        host
        for host in allowed_hosts
        if named_hosts and host not in named_hosts and host not in silent_hosts
    ]
    return {host: policy.reachable(_grains(cloud, host)) for host in other_hosts}


def _ask_hosts(
    cloud: Cloud,
    hosts: Sequence[str],
    addresses_by_host: Mapping[str, list[str]],
    *,
    is_synced: bool,
) -> tuple[list[Gap], dict[str, SetupFacts]]:
    """Return hosts' gaps, and the answers that could be judged."""
    grains = {host_id: _grains(cloud, host_id) for host_id in hosts}
    peers = {host_id: policy.reachable(host_grains) for host_id, host_grains in grains.items()}
    timeout_s, begun_s = cloud.settings.timeout_s, time.time()
    replies = minions.ask(
        *(cloud, hosts, FUN),
        kwarg={"peers": peers, **({"others": addresses_by_host} if addresses_by_host else {})},
        timeout_s=timeout_s + _LONGER_S,
        wait=Wait.brief(hosts),
    )
    baseline = hostchecks.Baseline(
        code=filecontent.of_code(),
        hash_type=str(cloud.opts.get("hash_type")),
        begun_s=begun_s,
        ended_s=time.time(),
    )
    silent_hosts = [host for host, reply in replies.items() if reply.missing]
    # For a host without our modules Salt itself has sent an error.
    unproved_hosts = [host for host in silent_hosts if replies[host].error]
    unsigned_answers = unsigned.answers(cloud, unproved_hosts, FUN, timeout_s)
    gaps = [
        unloaded.gap(
            host_id,
            replies[host_id].error,
            unsigned_answers.get(host_id),
            grains[host_id],
            is_synced=is_synced,
        )
        for host_id in silent_hosts
    ]
    answers: dict[str, SetupFacts] = {}
    for host in sorted(set(replies) - set(silent_hosts)):
        gaps += _judge(host, replies[host], baseline, answers, is_synced=is_synced)
    return gaps, answers


def _judge(
    host: str,
    reply: minions.Reply,
    baseline: hostchecks.Baseline,
    answers: dict[str, SetupFacts],
    *,
    is_synced: bool,
) -> Iterable[Gap]:
    """Return the gaps of a host that replied, and add its answer to ``answers``."""
    if not reply.ok:
        return [_failure_gap(host, reply.reason, is_synced=is_synced)]
    try:
        facts = answers[host] = wire.read(host, FUN, SetupFacts, reply.value)
    except wire.BadAnswer as error:
        return [hostchecks.unchecked_gap(host, str(error))]
    return list(hostchecks.gaps(host, facts, baseline))


def _failure_gap(host: str, reason: str, *, is_synced: bool) -> Gap:
    if reason.startswith("option "):
        return Gap(
            check="options",
            where=host,
            what=reason,
            fix=f"mend it in the configuration (/etc/salt/minion.d) or the pillar of {host}",
        )
    return unloaded.gap(host, reason, reason, {}, is_synced=is_synced)


def _grains(cloud: Cloud, host: str) -> Mapping[str, Any]:
    """Return a host's grains from the master's cache; empty if there are none."""
    return salt.utils.minions.get_minion_data(host, dict(cloud.opts))[1] or {}
