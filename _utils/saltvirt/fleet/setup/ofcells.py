"""Judge the cells of a master: what keeps its VMs, or those of its cells, from being made."""

from collections.abc import Iterable, Iterator

from saltvirt.fleet.cells.checking import Fault
from saltvirt.fleet.setup.gaps import CELLS, NEEDED, Gap


def gaps(faults: Iterable[Fault]) -> Iterator[Gap]:
    """Yield what is missing of cells: all new VMs, or those of one cell, are refused meanwhile."""
    for fault in faults:
        yield Gap(
            check="cells",
            where=fault.where,
            what=fault.what,
            fix=fault.fix,
            level=NEEDED if fault.concerns_all else CELLS,
        )
