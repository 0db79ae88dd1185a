"""What one look of ``virt.doctor`` at a cloud has found: the master's records, and hosts' facts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from saltvirt.checks.doctor.doctoranswer import DoctorFacts
from saltvirt.checks.engine import CloudFacts, Host
from saltvirt.core.findings import Finding

FUN = "virt.doctor_facts"
MEND = "salt-run virt.doctor fix=True"


def fixable(subject: str, what: str, mend: str) -> Finding:
    """Return the finding about a leftover that ``fix=True`` mends."""
    return Finding(what, f"{MEND}  # {mend}", subject=subject, mend=mend)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderLeft:
    """
    An order that no command holds.

    new_name
        The other name of the rename that was cut off, empty for other orders.

    Error:
        The reason why its record cannot be read.
    """

    name: str
    phase: str
    since: str
    new_name: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterRecords:
    """
    What this master has on record.

    code, copies, foreign_virt
        As in :class:`DoctorFacts`.
    now_s
        Its time, in seconds since 1970.
    busy_vms
        VMs that a running command of this master works on.
    orders
        Orders that no command holds.
    locks
        Lock files of orders that no command holds.
    recorded_keys
        Keys on record as accepted for VMs, by id.
    present_keys
        ``(state, key)`` that the master has now for these ids.
    authorizations
        Unused authorizations: ``{VM: (host, until)}``.
    certified_hosts
        Hosts with valid certificates.
    accepted_ids
        Ids of all accepted minions.
    allowed_ids
        Ids among all these that are allowed as hosts.
    last_seen_vms
        VMs last seen on hosts that are not gone for good: ``{host: VMs}``.
    answering_minions
        Minions of VMs that answer, if nothing else seems to need their keys.
    """

    code: str = ""
    copies: list[str] = field(default_factory=list)
    foreign_virt: list[str] = field(default_factory=list)
    now_s: float = 0.0
    busy_vms: frozenset[str] = frozenset()
    orders: list[OrderLeft] = field(default_factory=list)
    locks: list[str] = field(default_factory=list)
    recorded_keys: Mapping[str, str] = field(default_factory=dict)
    present_keys: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    authorizations: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    certified_hosts: frozenset[str] = frozenset()
    accepted_ids: frozenset[str] = frozenset()
    allowed_ids: frozenset[str] = frozenset()
    last_seen_vms: Mapping[str, list[str]] = field(default_factory=dict)
    answering_minions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCloud(CloudFacts[MasterRecords, DoctorFacts]):
    """What one look at a cloud has found, and what may need a file or a key."""

    @property
    def is_whole(self) -> bool:
        """Whether all hosts that may have a VM have answered."""
        # The master remembers the VMs of a host that is not allowed any more.
        return not self.failures and set(self.master.last_seen_vms) <= set(self.hosts)

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
        """Names of VMs anywhere, now or when their disks were made."""
        vm_names = {name for facts in self.hosts.values() for name in (*facts.vms, *facts.made_for)}
        # The answer of a host replaces the VMs last seen there.
        unanswered_hosts = set(self.master.last_seen_vms) - set(self.hosts)
        return vm_names | {
            name for host in unanswered_hosts for name in self.master.last_seen_vms[host]
        }

    @property
    def busy(self) -> set[str]:
        """VMs with a record on this master or on a host."""
        vm_names = {name for facts in self.hosts.values() for name in facts.busy}
        return vm_names | {order.name for order in self.master.orders} | self.master.busy_vms

    @property
    def shared(self) -> set[str]:
        """
        Names of files on shared storage that any host needs.

        Without folders: hosts may have the storage in different ones.
        """
        return {Path(path).name for facts in self.hosts.values() for path in facts.shared}

    @property
    def are_shared_files_known(self) -> bool:
        """Whether all hosts know all that they need on shared storage."""
        return not any(facts.unreadable for facts in self.hosts.values())


DoctorHost = Host[DoctorCloud, DoctorFacts]
