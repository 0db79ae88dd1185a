"""Judge the master's records: pure functions that yield findings."""

import shlex
from collections.abc import Iterator
from dataclasses import replace

from saltvirt.checks.doctor.doctoranswer import DoctorFacts
from saltvirt.checks.doctor.master.doctorcloud import FUN, DoctorCloud, MasterRecords, fixable
from saltvirt.checks.engine import Checks, foreign_virt, unchecked
from saltvirt.core.findings import Finding
from saltvirt.core.terminal import join_some

_NOT_JUDGED = "until it answers, no file and no key is judged that one of its VMs may need"

CHECKS: Checks[DoctorCloud, DoctorFacts] = Checks()


@CHECKS.master("code-mixed")
def _copies(facts: MasterRecords) -> Iterator[Finding]:
    if len(facts.copies) > 1:
        yield Finding(
            f"it finds this project twice: {', '.join(facts.copies)}",
            "keep one of them: salt-pip uninstall saltvirt, or remove what was synced from "
            "extension_modules; then systemctl restart salt-master",
        )


@CHECKS.master("other-virt")
def _foreign_virt(facts: MasterRecords) -> Iterator[Finding]:
    restart_command = "systemctl restart salt-master"
    yield from foreign_virt(facts.foreign_virt, "salt-pip uninstall", restart_command)


@CHECKS.master("order", "record")
def _orders(facts: MasterRecords) -> Iterator[Finding]:
    for order in facts.orders:
        if order.error:
            yield Finding(
                f"the order of VM {order.name} cannot be read: {order.error}",
                "see what it was about, then move it out of its folder",
                check="record",
                subject=order.name,
            )
        elif order.new_name:
            names = " ".join(map(shlex.quote, (order.name, order.new_name)))
            yield Finding(
                f"a rename between {order.name} and {order.new_name} was cut off at {order.since}; "
                "the VM has one of the names, and its key is accepted for both",
                f"stop the VM, then salt-run virt.rename {names}: it is called {order.new_name} "
                "afterwards, whichever name it has now",
                check="order",
                subject=order.name,
            )
        else:
            yield fixable(
                order.name,
                f"a command for VM {order.name} was cut off at {order.since} ({order.phase})",
                "settles it by what the hosts have: a complete VM stays, with its key",
            )


@CHECKS.master("lock")
def _locks(facts: MasterRecords) -> Iterator[Finding]:
    for path in facts.locks:
        yield fixable(path, f"{path} is a lock that no command holds", "removes it")


def is_key_needed(name: str, cloud: DoctorCloud) -> bool:
    """Return whether anything may still need the key that was accepted for a VM."""
    master = cloud.master
    return (
        not cloud.is_whole
        or master.present_keys.get(name) != ("accepted", master.recorded_keys.get(name))
        or name in cloud.names
        or name in cloud.busy
        or name in master.authorizations
        or name in master.allowed_ids
        or name in master.answering_minions
    )


@CHECKS.cloud("key")
def _keys(cloud: DoctorCloud) -> Iterator[Finding]:
    for name in sorted(cloud.master.recorded_keys):
        if not is_key_needed(name, cloud):
            yield Finding(
                f"the key of VM {name} is accepted, and no host has such a VM",
                f"define it again; or if it is gone for good: salt-key -d {shlex.quote(name)}",
                subject=name,
            )


@CHECKS.cloud("vm-without-key")
def _missing_keys(cloud: DoctorCloud) -> Iterator[Finding]:
    hosts_by_vm = {name: host for host, facts in cloud.hosts.items() for name in facts.vms}
    for name in sorted(hosts_by_vm.keys() & cloud.master.recorded_keys.keys()):
        state, _public_key = cloud.master.present_keys.get(name, (None, None))
        # A rejected key is an operator's decision.
        if state in (None, "pending") and name not in cloud.busy:
            vm = shlex.quote(name)
            yield Finding(
                f"VM {name} had a key on this master, and has none any more: its minion cannot "
                "answer",
                f"if it is to answer: salt-key -a {vm}, once its minion has asked; else salt-key "
                f"-r {vm}",
                where=hosts_by_vm[name],
                subject=name,
            )


@CHECKS.master("authorization")
def _authorizations(facts: MasterRecords) -> Iterator[Finding]:
    for name, (host, until) in sorted(facts.authorizations.items()):
        if until < facts.now_s:
            yield fixable(
                name,
                f"{host} was authorized to submit a key of VM {name}, and did not do so in time",
                f"salt-run virt.unauthorize {shlex.quote(name)}",
            )


@CHECKS.master("certificate")
def _certificates(facts: MasterRecords) -> Iterator[Finding]:
    master = facts
    for host in sorted(master.certified_hosts - master.accepted_ids):
        what = f"{host} has certificates that are valid, and is not a minion of this master"
        command = f"salt-run virt.disallow {shlex.quote(host)}"
        mend = "" if host in master.allowed_ids else f"{command}: revokes them"
        # An allowed host may come back with a new key.
        fix = f"{command}, if it does not come back"
        finding = fixable(host, what, mend) if mend else Finding(what, fix, subject=host)
        yield replace(finding, where=host)


@CHECKS.cloud("not-checked")
def _unchecked_hosts(cloud: DoctorCloud) -> Iterator[Finding]:
    for host, failure in sorted(cloud.failures.items()):
        finding = unchecked(host, failure.text, FUN, _NOT_JUDGED)
        gone_hint = f"; if it never comes back: salt-run virt.host_lost {shlex.quote(host)}"
        yield replace(finding, fix=finding.fix + gone_hint)


@CHECKS.cloud("not-checked")
def _remembered_hosts(cloud: DoctorCloud) -> Iterator[Finding]:
    for host, names in sorted(cloud.master.last_seen_vms.items()):
        if host not in cloud.hosts and host not in cloud.failures:
            name = shlex.quote(host)
            yield Finding(
                f"this master does not ask it any more, and it had VMs ({join_some(names, 5)}): "
                "no file and no key is judged",
                f"allow it again: salt-run virt.allow {name}; if it is gone for good: salt-run "
                f"virt.host_lost {name}",
                where=host,
            )
