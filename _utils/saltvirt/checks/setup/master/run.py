"""Check a setup: read the master's facts, ask all hosts once, judge the answers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import salt.utils.minions

from saltvirt.ca import policy, store
from saltvirt.cells import cellstatus
from saltvirt.checks.engine import Checks
from saltvirt.checks.master.asking import Answers, ProblemsFound, ask_hosts
from saltvirt.checks.master.masterfacts import MasterFacts
from saltvirt.checks.setup.master import hostchecks, masterchecks, unloaded
from saltvirt.checks.setup.master.setupcloud import FUN, LEVELS, NEEDED, SetupCloud, read_answer
from saltvirt.checks.setup.setupanswer import SetupFacts
from saltvirt.cluster import candidates
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.cluster.rpc.waits import silent_since
from saltvirt.core.findings import MASTER, Finding
from saltvirt.core.terminal import count_text

READY = "nothing that VMs need is missing: salt-run virt.init NAME 1 512 IMAGE"
# More time: at its first check a host probes KVM, and tries to reach others.
LONGER_S = 10

CHECKS: Checks[SetupCloud, SetupFacts] = Checks(
    masterchecks.CHECKS, unloaded.CHECKS, hostchecks.CHECKS
)
# Checks in the order of mending: later ones depend on earlier ones, or show only after them.
ORDER = sorted(CHECKS.levels, key=lambda name: LEVELS.index(CHECKS.levels[name] or NEEDED))


def check(cloud: Cloud, host_arguments: Sequence[object]) -> dict[str, Any]:
    """
    Return ``{"findings": [], "checked": [host], "ready": text}``.

    host_arguments
        The hosts to check, empty for all that are allowed. They also try to reach other hosts,
        through the firewalls of these.

    Raises :class:`ProblemsFound` if a finding prevents every deployment.
    """
    named_hosts = sorted(
        {host_id for word in host_arguments for host_id in candidates.parse_ids(word)}
    )
    setup_cloud = _read_cloud(cloud, named_hosts)
    findings = sort_findings(CHECKS.judge(setup_cloud))
    table = {
        "findings": [finding.row() for finding in findings],
        "checked": sorted(setup_cloud.hosts),
    }
    needed_count = sum(finding.level == NEEDED for finding in findings)
    if needed_count:
        count, verb = count_text(needed_count, "thing"), "is" if needed_count == 1 else "are"
        message = f"{count} {verb} missing that VMs need; mend the first, then ask again"
        raise ProblemsFound(message, table)
    return {**table, "ready": READY}


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings in the order of mending, the master's first."""
    return sorted(
        findings,
        key=lambda finding: (
            LEVELS.index(finding.level or NEEDED),
            ORDER.index(finding.check),
            finding.where != MASTER,
            finding.where,
        ),
    )


def _read_cloud(cloud: Cloud, named_hosts: Sequence[str]) -> SetupCloud:
    allowed_hosts = inventory.allowed_hosts(cloud)
    hosts = [host for host in allowed_hosts if not named_hosts or host in named_hosts]
    addresses_by_host = _find_unasked_hosts(cloud, allowed_hosts, named_hosts)
    grains = read_grains(cloud, hosts)
    answers = ask_hosts(
        *(cloud, hosts, FUN, read_answer),
        kwarg={
            "peers": find_peers(grains),
            **({"others": addresses_by_host} if addresses_by_host else {}),
        },
        timeout_s=cloud.settings.timeout_s + LONGER_S,
    )
    master = MasterFacts(cloud, store.utc_now(), named_hosts)
    setup_cloud = build_cloud(cloud, master, answers, grains)
    if not named_hosts:
        return setup_cloud
    return replace(setup_cloud, unasked_hosts=list(addresses_by_host))


def find_peers(grains: Mapping[str, Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return ``{host: addresses}`` by the cached grains of hosts, for their question."""
    return {host: policy.reachable(host_grains) for host, host_grains in grains.items()}


def read_grains(cloud: Cloud, hosts: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """Return the cached grains of hosts."""
    return {host: _grains(cloud, host) for host in hosts}


def build_cloud(
    cloud: Cloud,
    master: MasterFacts,
    answers: Answers[SetupFacts],
    grains: Mapping[str, Mapping[str, Any]],
) -> SetupCloud:
    """Return what a check judges, by the answers of the asked hosts."""
    # For a host without our modules Salt itself has sent an error.
    unproved_hosts = [
        host for host, failure in answers.failures.items() if failure.is_missing and failure.reason
    ]
    return SetupCloud(
        master=master,
        hosts=answers.hosts,
        failures=answers.failures,
        begun_s=answers.begun_s,
        ended_s=answers.ended_s,
        unsigned_replies=unloaded.unsigned_answers(
            cloud, unproved_hosts, FUN, cloud.settings.timeout_s
        ),
        grains=grains,
        cell_faults=[] if master.named_hosts else cellstatus.faults(cloud.opts, cloud.settings),
    )


def _find_unasked_hosts(
    cloud: Cloud, allowed_hosts: Iterable[str], named_hosts: Collection[str]
) -> dict[str, list[str]]:
    """
    Return ``{host: addresses}`` of the hosts that named hosts try to reach; empty without names.

    A host that was unresponsive when last asked is left out: no firewall makes it reachable.
    """
    excluded_hosts = {*named_hosts, *(silent_since(cloud.opts) if named_hosts else ())}
    other_hosts = [host for host in allowed_hosts if named_hosts and host not in excluded_hosts]
    return {host: policy.reachable(_grains(cloud, host)) for host in other_hosts}


def _grains(cloud: Cloud, host: str) -> Mapping[str, Any]:
    """Return a host's grains from the master's cache; empty if there are none."""
    return salt.utils.minions.get_minion_data(host, dict(cloud.opts))[1] or {}
