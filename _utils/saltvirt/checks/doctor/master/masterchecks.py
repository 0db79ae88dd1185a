"""Judge the master's facts: pure functions that yield leftovers."""

import shlex
from collections.abc import Iterator

from saltvirt.checks.doctor.master.leftover import (
    CloudFacts,
    Leftover,
    fixable_leftover,
    manual_leftover,
)
from saltvirt.core.findings import MASTER


def findings(cloud_facts: CloudFacts) -> Iterator[Leftover]:
    """Yield the leftovers of the master."""
    yield from _code(cloud_facts)
    yield from _orders(cloud_facts)
    yield from _keys(cloud_facts)
    yield from _authorizations(cloud_facts)
    yield from _certificates(cloud_facts)


def _code(cloud_facts: CloudFacts) -> Iterator[Leftover]:
    if len(cloud_facts.master.copies) > 1:
        yield manual_leftover(
            *("code-mixed", MASTER, MASTER),
            f"it finds this project twice: {', '.join(cloud_facts.master.copies)}",
            "keep one of them: salt-pip uninstall saltext-virt, or remove what was synced from "
            "extension_modules; then systemctl restart salt-master",
        )


def _orders(cloud_facts: CloudFacts) -> Iterator[Leftover]:
    for order in cloud_facts.master.orders:
        if order.error:
            yield manual_leftover(
                *("record", MASTER, order.name),
                f"the order of VM {order.name} cannot be read: {order.error}",
                "see what it was about, then move it out of its folder",
            )
        else:
            yield fixable_leftover(
                *("order", MASTER, order.name),
                f"a command for VM {order.name} was cut off at {order.since} ({order.phase})",
                "settles it by what the hosts have: a complete VM stays, with its key",
            )
    for path in cloud_facts.master.locks:
        problem = f"{path} is a lock that no command holds"
        yield fixable_leftover("lock", MASTER, path, problem, "removes it")


def is_key_needed(name: str, cloud_facts: CloudFacts) -> bool:
    """Return whether anything may still need the key that was accepted for a VM."""
    master = cloud_facts.master
    return (
        not cloud_facts.is_whole
        or master.keys.get(name) != ("accepted", master.noted.get(name))
        or name in cloud_facts.names
        or name in cloud_facts.busy
        or name in master.authorized
        or name in master.allowed
        or name in master.answering
    )


def _keys(cloud_facts: CloudFacts) -> Iterator[Leftover]:
    hosts_by_vm = {name: host for host, facts in cloud_facts.hosts.items() for name in facts.vms}
    for name in sorted(cloud_facts.master.noted):
        if not is_key_needed(name, cloud_facts):
            yield manual_leftover(
                *("key", MASTER, name),
                f"the key of VM {name} is accepted, and no host has such a VM",
                f"define it again; or if it is gone for good: salt-key -d {shlex.quote(name)}",
            )
        state, _public = cloud_facts.master.keys.get(name, (None, None))
        # A rejected key is an operator's decision.
        if name in hosts_by_vm and state in (None, "pending") and name not in cloud_facts.busy:
            accept_command = f"salt-key -a {shlex.quote(name)}"
            yield manual_leftover(
                *("vm-without-key", hosts_by_vm[name], name),
                f"VM {name} had a key on this master, and has none any more: its minion cannot "
                "answer",
                f"if it is to answer: {accept_command}, once its minion has asked; else salt-key "
                "-r "
                f"{shlex.quote(name)}",
            )


def _authorizations(cloud_facts: CloudFacts) -> Iterator[Leftover]:
    for name, (host, until) in sorted(cloud_facts.master.authorized.items()):
        if until < cloud_facts.master.now_s:
            yield fixable_leftover(
                *("authorization", MASTER, name),
                f"{host} was authorized to submit a key of VM {name}, and never did in time",
                f"salt-run virt.unauthorize {shlex.quote(name)}",
            )


def _certificates(cloud_facts: CloudFacts) -> Iterator[Leftover]:
    master = cloud_facts.master
    for host in sorted(master.certified - master.accepted):
        problem = f"{host} has certificates that are valid, and is not a minion of this master"
        disallow_command = f"salt-run virt.disallow {shlex.quote(host)}"
        if host in master.allowed:
            # The host may come back with a new key.
            yield manual_leftover(
                *("certificate", host, host),
                problem,
                f"{disallow_command}, if it does not come back",
            )
        else:
            yield fixable_leftover(
                "certificate", host, host, problem, f"{disallow_command}: revokes them"
            )
