"""Audit a cloud: read the master's facts, ask all hosts once, judge the answers."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from saltvirt.cells import cellstatus
from saltvirt.checks.audit.auditanswer import HostAudit
from saltvirt.checks.audit.master import hostchecks, masterchecks, vmchecks
from saltvirt.checks.audit.master.auditcloud import FUN, AuditCloud, read_answer
from saltvirt.checks.engine import Checks, HostFailure
from saltvirt.checks.master.asking import ProblemsFound, ask_hosts
from saltvirt.checks.master.masterfacts import MasterFacts
from saltvirt.cluster import membership
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.core.terminal import count_text

CHECKS: Checks[AuditCloud, HostAudit] = Checks(
    masterchecks.CHECKS, hostchecks.CHECKS, vmchecks.CHECKS
)


def audit(cloud: Cloud, now: datetime) -> dict[str, Any]:
    """
    Return ``{"findings": [], "checked": [host]}``; raise :class:`ProblemsFound` for any finding.

    All allowed hosts are asked, even if a VM has such a name, which is a finding.
    """
    allowed_hosts = inventory.allowed_hosts(cloud)
    answers = ask_hosts(cloud, allowed_hosts, FUN, read_answer)
    master = MasterFacts(cloud, now)
    findings = CHECKS.judge(
        build_cloud(cloud, master, allowed_hosts, answers.hosts, answers.failures)
    )
    rows = [finding.row() for finding in findings]
    table = {"findings": rows, "checked": sorted(answers.hosts)}
    if rows:
        count, verb = count_text(len(rows), "thing"), "falls" if len(rows) == 1 else "fall"
        message = f"{count} {verb} short of docs/security.md; each is named with its fix"
        raise ProblemsFound(message, table)
    return table


def build_cloud(
    cloud: Cloud,
    master: MasterFacts,
    allowed_hosts: Collection[str],
    hosts: Mapping[str, HostAudit],
    failures: Mapping[str, HostFailure],
) -> AuditCloud:
    """Return what an audit judges, by the answers of all allowed hosts."""
    vms_by_host = {host: facts.vms for host, facts in hosts.items()}
    last_seen_guests = membership.find_last_seen_guests(
        cloud.opts, master.members, set(allowed_hosts) - set(vms_by_host)
    )
    return AuditCloud(
        master=master,
        hosts=hosts,
        failures=failures,
        hosts_by_guest={
            **last_seen_guests,
            **membership.find_guests(master.members, vms_by_host),
        },
        cell_faults=cellstatus.faults(cloud.opts, cloud.settings),
    )
