"""Judge a master's cells: their certificates, and how their files are protected."""

from collections.abc import Iterable, Iterator

from saltvirt.cells.cellstatus import ANSWER, AUTHORITY, CERTIFICATE, CREDENTIALS, Fault
from saltvirt.core.findings import Finding

# The check of the master's options reports unusable entries.
_CHECKS = {
    CREDENTIALS: "cell-credentials",
    AUTHORITY: "cell-tls",
    CERTIFICATE: "cell-tls",
    ANSWER: "not-checked",
}


def findings(faults: Iterable[Fault]) -> Iterator[Finding]:
    """Yield a finding for each fault, except faults of options."""
    for fault in faults:
        if fault.kind in _CHECKS:
            yield Finding(
                check=_CHECKS[fault.kind], where=fault.where, what=fault.problem, fix=fault.fix
            )
