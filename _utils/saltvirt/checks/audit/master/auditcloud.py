"""What one audit of a cloud has found; read an answer of a host."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from saltvirt.cells.cellstatus import Fault
from saltvirt.checks.audit.auditanswer import HostAudit
from saltvirt.checks.engine import CloudFacts, Host
from saltvirt.checks.master.masterfacts import MasterFacts
from saltvirt.core import wire

FUN = "virt.audit"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditCloud(CloudFacts[MasterFacts, HostAudit]):
    """
    What one audit of a cloud has found.

    hosts_by_guest
        VMs with a minion that would be taken for a hypervisor, and the hosts that have them.
    cell_faults
        The faults of this master's cells.
    """

    hosts_by_guest: Mapping[str, Sequence[str]] = field(default_factory=dict)
    cell_faults: Sequence[Fault] = ()


AuditHost = Host[AuditCloud, HostAudit]


def read_answer(host: str, value: object) -> HostAudit:
    """Return a host's answer; raise ``wire.BadAnswer``, also for a time that cannot be."""
    facts: HostAudit = wire.read(host, FUN, HostAudit, value)
    for text in _times(facts):
        try:
            has_zone = datetime.fromisoformat(text).tzinfo is not None
        except ValueError:
            raise wire.BadAnswer(
                f"{host}'s answer is not understood: it has an impossible time"
            ) from None
        if not has_zone:
            raise wire.BadAnswer(f"{host}'s answer is not understood: it has a time without a zone")
    return facts


def _times(facts: HostAudit) -> Iterator[str]:
    for revocation in facts.revoked.values():
        yield revocation.ends
    for certificate in facts.certificates:
        yield from (certificate.not_before, certificate.not_after)
