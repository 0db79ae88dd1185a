"""What ``virt.doctor`` finds, and all that it is judged by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from saltvirt.fleet.findings import Finding
from saltvirt.placement.doctor import DoctorFacts

MEND = "salt-run virt.doctor fix=True"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover(Finding):
    """
    One thing that is left over.

    subject
        What it is: a VM, a path, a pool.
    does
        What ``fix=True`` does; empty if an operator has to do it.
    """

    subject: str
    does: str = ""


def fixable_leftover(check: str, where: str, subject: str, problem: str, action: str) -> Leftover:
    """Return what ``fix=True`` mends."""
    fix = f"{MEND}  # {action}"
    return Leftover(check=check, where=where, subject=subject, what=problem, fix=fix, does=action)


def manual_leftover(check: str, where: str, subject: str, problem: str, fix: str) -> Leftover:
    """Return what an operator has to mend."""
    return Leftover(check=check, where=where, subject=subject, what=problem, fix=fix)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderLeft:
    """An order that no command holds; ``error`` is why its record cannot be read."""

    name: str
    phase: str
    since: str
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterFacts:
    """
    What this master has.

    code, copies
        As a host's.
    now_s
        Its time, in seconds since 1970.
    at_work
        VMs that a command of this master is at work on.
    orders
        Orders that nobody holds.
    locks
        Lock files of orders that nobody holds.
    noted
        Keys that were accepted for VMs, by their ids.
    keys
        ``(state, key)`` that the master has now under these ids.
    authorized
        ``{VM: (host, until)}``.
    certified
        Hosts with certificates that are valid.
    accepted
        Ids of all accepted minions.
    allowed
        Hosts that are allowed.
    hints
        ``{host: VMs}`` when they were last asked, of hosts that are not gone for good.
    answering
        Minions that answer, of those whose keys nobody else seems to need.
    """

    code: str = ""
    copies: list[str] = field(default_factory=list)
    now_s: float = 0.0
    at_work: frozenset[str] = frozenset()
    orders: list[OrderLeft] = field(default_factory=list)
    locks: list[str] = field(default_factory=list)
    noted: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    authorized: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    certified: frozenset[str] = frozenset()
    accepted: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()
    hints: Mapping[str, list[str]] = field(default_factory=dict)
    answering: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudFacts:
    """
    A whole look at a cloud.

    silent
        ``{host: why}`` of the hosts that gave no answer that can be judged.
    """

    master: MasterFacts
    hosts: Mapping[str, DoctorFacts]
    silent: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether all hosts that may have a VM have said what they have."""
        # Of a host that is shut out the master remembers what it had.
        return not self.silent and set(self.master.hints) <= set(self.hosts)

    @property
    def uuids(self) -> dict[str, set[str]]:
        """``{UUID: files}`` of all domains on all hosts."""
        out: dict[str, set[str]] = {}
        for facts in self.hosts.values():
            for vm in facts.vms.values():
                out.setdefault(vm.uuid, set()).update(vm.files)
        return out

    @property
    def names(self) -> set[str]:
        """What VMs are called anywhere, or were called when their disks were made."""
        vm_names = {name for facts in self.hosts.values() for name in (*facts.vms, *facts.made_for)}
        # Of those that have answered, the answer counts.
        unanswered_hosts = set(self.master.hints) - set(self.hosts)
        return vm_names | {name for host in unanswered_hosts for name in self.master.hints[host]}

    @property
    def busy(self) -> set[str]:
        """VMs that anything is on record of, here or on a host."""
        vm_names = {name for facts in self.hosts.values() for name in facts.busy}
        return vm_names | {order.name for order in self.master.orders} | self.master.at_work

    @property
    def shared(self) -> set[str]:
        """
        What files of storage that hosts share are called which any of them needs.

        Hosts may have it in other folders.
        """
        return {Path(path).name for facts in self.hosts.values() for path in facts.shared}

    @property
    def is_all_told(self) -> bool:
        """Whether all hosts can tell what they need of the storage that they share."""
        return not any(facts.unreadable for facts in self.hosts.values())
