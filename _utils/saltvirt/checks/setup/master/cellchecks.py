"""Judge a master's cells: faults that prevent new VMs, here or in a cell."""

from collections.abc import Iterable, Iterator

from saltvirt.cells.cellstatus import Fault
from saltvirt.checks.setup.master.gaps import CELLS, NEEDED, Gap


def gaps(faults: Iterable[Fault]) -> Iterator[Gap]:
    """Yield a gap for each fault: it blocks all new VMs, or those of one cell."""
    for fault in faults:
        yield Gap(
            check="cells",
            where=fault.where,
            what=fault.problem,
            fix=fault.fix,
            level=NEEDED if fault.concerns_all else CELLS,
        )
