"""Judge the cells of a master: who could be taken for one, or ask it as this master does."""

from collections.abc import Iterable, Iterator

from saltvirt.fleet.cells.checking import ANSWER, AUTHORITY, CERTIFICATE, CREDENTIALS, Fault
from saltvirt.fleet.findings import Finding

# Entries that cannot be used are among the master's options.
_CHECKS = {
    CREDENTIALS: "cell-credentials",
    AUTHORITY: "cell-tls",
    CERTIFICATE: "cell-tls",
    ANSWER: "not-checked",
}


def findings(faults: Iterable[Fault]) -> Iterator[Finding]:
    """Yield what falls short of cells."""
    for fault in faults:
        if fault.kind in _CHECKS:
            yield Finding(
                check=_CHECKS[fault.kind], where=fault.where, what=fault.what, fix=fault.fix
            )
