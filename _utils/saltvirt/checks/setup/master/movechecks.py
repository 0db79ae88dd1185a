"""Judge what hosts lack for moving VMs: pure functions over all hosts' answers."""

import shlex
from collections.abc import Collection, Iterator, Mapping

from saltvirt.checks.setup.master.gaps import HINT, MOVING, Gap
from saltvirt.checks.setup.setupanswer import SetupFacts
from saltvirt.core.findings import apply_command


def gaps(answers: Mapping[str, SetupFacts], other_hosts: Collection[str] = ()) -> Iterator[Gap]:
    """
    Yield what keeps VMs from moving between hosts.

    other_hosts
        Hosts that were not asked, and that the asked hosts tried to reach.
    """
    for host, facts in sorted(answers.items()):
        moving_facts = facts.moving
        if moving_facts.certificates:
            more_text = (
                f" and {len(moving_facts.certificates) - 1} more"
                if moving_facts.certificates[1:]
                else ""
            )
            yield Gap(
                check="certificates",
                where=host,
                what=f"{moving_facts.certificates[0]}{more_text} missing: VMs move over TLS only",
                fix=apply_command(host, "hypervisor.keys"),
                level=MOVING,
            )
        elif not moving_facts.listens:
            yield Gap(
                check="tls",
                where=host,
                what="nothing listens at port 16514, libvirt's for TLS",
                fix=apply_command(host, "hypervisor.libvirt"),
                level=MOVING,
            )
    yield from _unresolved_names(answers, {*answers, *other_hosts})
    yield from _closed_ports(answers, other_hosts)
    yield from _cloned_machines(answers)


def _unresolved_names(answers: Mapping[str, SetupFacts], peers: Collection[str]) -> Iterator[Gap]:
    """Yield hosts that cannot resolve others' ids, by which libvirt finds the target of a move."""
    for host, facts in sorted(answers.items()):
        reasons = {
            peer: reason
            for peer, reason in sorted(facts.moving.names.items())
            if reason is not None
        }
        unresolved_peers = [peer for peer in reasons if peer in peers]
        if unresolved_peers:
            name, peer = shlex.quote(host), unresolved_peers[0]
            yield Gap(
                check="names",
                where=host,
                what=f"it finds no address for {', '.join(unresolved_peers)} ({reasons[peer]}): "
                "VMs move to a "
                "host by its minion id",
                fix=f"have a name server know the ids of all hypervisors; or of each, here: salt "
                f"{name} hosts.add_host ADDRESS {shlex.quote(peer)}",
                level=MOVING,
            )


def _cloned_machines(answers: Mapping[str, SetupFacts]) -> Iterator[Gap]:
    """Yield hosts with the machine id of another, as clones of one installation have."""
    hosts_by_machine: dict[str, list[str]] = {}
    for host, facts in sorted(answers.items()):
        if facts.machine:
            hosts_by_machine.setdefault(facts.machine, []).append(host)
    for first_host, *other_hosts in hosts_by_machine.values():
        for host in other_hosts:
            yield Gap(
                check="names",
                where=host,
                what=f"its /etc/machine-id is that of {first_host}, so each takes files of the "
                "other on "
                "shared storage for its own",
                fix=f"on {host}: rm /etc/machine-id, then systemd-machine-id-setup, then reboot",
                level=HINT,
            )


def _closed_ports(answers: Mapping[str, SetupFacts], other_hosts: Collection[str]) -> Iterator[Gap]:
    """Yield hosts that others do not reach though libvirt listens there, or should."""
    listening_hosts = {
        *other_hosts,
        *(host for host, facts in answers.items() if facts.moving.listens),
    }
    reasons_by_peer: dict[str, dict[str, str]] = {}
    for host, facts in sorted(answers.items()):
        for peer, reason in sorted(facts.moving.peers.items()):
            if reason is not None and peer in listening_hosts:
                reasons_by_peer.setdefault(peer, {})[host] = reason
    for peer, reasons in reasons_by_peer.items():
        callers = ", ".join(reasons)
        yield Gap(
            check="firewall",
            where=peer,
            what=f"{callers} cannot reach its port 16514 ({next(iter(reasons.values()))})",
            fix=f"{apply_command(peer, 'hypervisor.firewall')}; if that mends nothing, see what is "
            "between "
            f"them: salt {shlex.quote(next(iter(reasons)))} network.connect {shlex.quote(peer)} "
            "16514",
            level=MOVING,
        )
