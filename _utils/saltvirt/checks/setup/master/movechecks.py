"""Judge what hosts lack for moving VMs: pure functions over all hosts' answers."""

import shlex
from collections.abc import Iterator

from saltvirt.checks.engine import Checks
from saltvirt.checks.setup.master.setupcloud import (
    CELLS,
    HINT,
    MOVING,
    NEEDED,
    SetupCloud,
    SetupHost,
)
from saltvirt.checks.setup.setupanswer import SetupFacts
from saltvirt.core.findings import Finding, apply_command

CHECKS: Checks[SetupCloud, SetupFacts] = Checks()


@CHECKS.host("certificates", level=MOVING)
def _certificates(host: SetupHost) -> Iterator[Finding]:
    paths = host.facts.moving.certificates
    if paths:
        more_text = f" and {len(paths) - 1} more" if paths[1:] else ""
        yield Finding(
            f"{paths[0]}{more_text} missing: VMs move over TLS only", host.apply("hypervisor.keys")
        )


@CHECKS.host("tls", level=MOVING)
def _tls(host: SetupHost) -> Iterator[Finding]:
    if not host.facts.moving.certificates and not host.facts.moving.listens:
        yield Finding(
            "nothing listens at port 16514, libvirt's for TLS", host.apply("hypervisor.libvirt")
        )


@CHECKS.host("names", level=MOVING)
def _unresolved_names(host: SetupHost) -> Iterator[Finding]:
    """Yield hosts that cannot resolve others' ids, by which libvirt finds the target of a move."""
    reasons, known_hosts = host.facts.moving.names, {*host.cloud.hosts, *host.cloud.unasked_hosts}
    peers = sorted(peer for peer in reasons if reasons[peer] is not None and peer in known_hosts)
    if peers:
        yield Finding(
            f"it finds no address for {', '.join(peers)} ({reasons[peers[0]]}): VMs move to a "
            "host by its minion id",
            "have a name server know the ids of all hypervisors; or of each, here: salt "
            f"{host.quoted} hosts.add_host ADDRESS {shlex.quote(peers[0])}",
        )


@CHECKS.cloud("names", level=HINT)
def _cloned_machines(cloud: SetupCloud) -> Iterator[Finding]:
    """Yield hosts with the machine id of another, as clones of one installation have."""
    hosts_by_machine: dict[str, list[str]] = {}
    for host, facts in sorted(cloud.hosts.items()):
        if facts.machine:
            hosts_by_machine.setdefault(facts.machine, []).append(host)
    for first_host, *other_hosts in hosts_by_machine.values():
        for host in other_hosts:
            yield Finding(
                f"its /etc/machine-id is that of {first_host}, so each takes files of the other on "
                "shared storage for its own",
                f"on {host}: rm /etc/machine-id, then systemd-machine-id-setup, then reboot",
                where=host,
            )


@CHECKS.cloud("firewall", level=MOVING)
def _closed_ports(cloud: SetupCloud) -> Iterator[Finding]:
    """Yield hosts that others do not reach though libvirt listens there, or should."""
    listening_hosts = {
        *cloud.unasked_hosts,
        *(host for host, facts in cloud.hosts.items() if facts.moving.listens),
    }
    reasons_by_peer: dict[str, dict[str, str]] = {}
    for host, facts in sorted(cloud.hosts.items()):
        for peer, reason in sorted(facts.moving.peers.items()):
            if reason is not None and peer in listening_hosts:
                reasons_by_peer.setdefault(peer, {})[host] = reason
    for peer, reasons in reasons_by_peer.items():
        caller, reason = next(iter(reasons.items()))
        yield Finding(
            f"{', '.join(reasons)} cannot reach its port 16514 ({reason})",
            f"{apply_command(peer, 'hypervisor.firewall')}; if that mends nothing, see what is "
            f"between them: salt {shlex.quote(caller)} network.connect {shlex.quote(peer)} 16514",
            where=peer,
        )


@CHECKS.cloud("cells", level=CELLS)
def _cells(cloud: SetupCloud) -> Iterator[Finding]:
    for fault in cloud.cell_faults:
        level = NEEDED if fault.concerns_all else CELLS
        yield Finding(fault.problem, fault.fix, where=fault.where, level=level)
