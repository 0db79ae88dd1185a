"""Judge what moving VMs needs of hosts: pure functions over the answers of all of them."""

import shlex
from collections.abc import Collection, Iterator, Mapping

from saltvirt.fleet.findings import apply
from saltvirt.fleet.setup.gaps import HINT, MOVING, Gap
from saltvirt.placement.setup import SetupFacts


def gaps(answers: Mapping[str, SetupFacts], others: Collection[str] = ()) -> Iterator[Gap]:
    """
    Yield what keeps VMs from moving between hosts; one alone needs none of it.

    others
        Hosts that were not asked, and that those which answered have tried to reach.
    """
    for host, facts in sorted(answers.items()):
        moving = facts.moving
        if moving.certificates:
            more = f" and {len(moving.certificates) - 1} more" if moving.certificates[1:] else ""
            yield Gap(
                check="certificates",
                where=host,
                what=f"{moving.certificates[0]}{more} missing: VMs move over TLS only",
                fix=apply(host, "hypervisor.keys"),
                level=MOVING,
            )
        elif not moving.listens:
            yield Gap(
                check="tls",
                where=host,
                what="nothing listens at port 16514, libvirt's for TLS",
                fix=apply(host, "hypervisor.libvirt"),
                level=MOVING,
            )
    yield from _unnamed(answers, {*answers, *others})
    yield from _closed(answers, others)
    yield from _cloned(answers)


def _unnamed(answers: Mapping[str, SetupFacts], peers: Collection[str]) -> Iterator[Gap]:
    """Yield the hosts that do not know others by their ids, which libvirt is told on a move."""
    for host, facts in sorted(answers.items()):
        whys = {peer: why for peer, why in sorted(facts.moving.names.items()) if why is not None}
        known = [peer for peer in whys if peer in peers]
        if known:
            name, peer = shlex.quote(host), known[0]
            yield Gap(
                check="names",
                where=host,
                what=f"it finds no address for {', '.join(known)} ({whys[peer]}): VMs move to a "
                "host by its minion id",
                fix=f"have a name server know the ids of all hypervisors; or of each, here: salt "
                f"{name} hosts.add_host ADDRESS {shlex.quote(peer)}",
                level=MOVING,
            )


def _cloned(answers: Mapping[str, SetupFacts]) -> Iterator[Gap]:
    """Yield the hosts whose machine id another host has too, as clones of one installation have."""
    hosts: dict[str, list[str]] = {}
    for host, facts in sorted(answers.items()):
        if facts.machine:
            hosts.setdefault(facts.machine, []).append(host)
    for first, *others in hosts.values():
        for host in others:
            yield Gap(
                check="names",
                where=host,
                what=f"its /etc/machine-id is that of {first}, so each takes files of the other on "
                "shared storage for its own",
                fix=f"on {host}: rm /etc/machine-id, then systemd-machine-id-setup, then reboot",
                level=HINT,
            )


def _closed(answers: Mapping[str, SetupFacts], others: Collection[str]) -> Iterator[Gap]:
    """Yield the hosts that others do not reach though something listens, or should, there."""
    listening = {*others, *(host for host, facts in answers.items() if facts.moving.listens)}
    found: dict[str, dict[str, str]] = {}
    for host, facts in sorted(answers.items()):
        for peer, why in sorted(facts.moving.peers.items()):
            if why is not None and peer in listening:
                found.setdefault(peer, {})[host] = why
    for peer, whys in found.items():
        others = ", ".join(whys)
        yield Gap(
            check="firewall",
            where=peer,
            what=f"{others} cannot reach its port 16514 ({next(iter(whys.values()))})",
            fix=f"{apply(peer, 'hypervisor.firewall')}; if that mends nothing, see what is between "
            f"them: salt {shlex.quote(next(iter(whys)))} network.connect {shlex.quote(peer)} 16514",
            level=MOVING,
        )
