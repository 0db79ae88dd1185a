"""Merge cells' answers: all hosts in one order, the cell of a VM; pure functions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt.cells.answers import Hosts, NameReport
from saltvirt.cells.registry import LOCAL
from saltvirt.cells.routes import display_name
from saltvirt.cluster.inventory.listing import INFO_SORT_KEYS, QUERY_SORT_KEYS, Look
from saltvirt.cluster.inventory.whereabouts import RUNNING_STATES
from saltvirt.core.errors import NameTaken, NoSuchVm
from saltvirt.core.vmfilter import VmFilter

# Values to sort by; the largest comes first.
_MOST: Mapping[str, Mapping[str, Callable[[Any], float]]] = {
    "virt.list": {"vms": lambda row: sum(map(len, row.values()))},
    "virt.query": QUERY_SORT_KEYS,
    "virt.host_info": INFO_SORT_KEYS,
}


def hosts_pattern(cell: str) -> str:
    """Return the pattern that stands for all hosts of a cell."""
    return f"{cell}/*"


def merge_answers(
    fun: str, cells: Mapping[str, Hosts], reasons_by_cell: Mapping[str, str], look: Look | None
) -> dict[str, Any]:
    """
    Return ``{host: row}`` of all cells, with the extra entries of a listing.

    reasons_by_cell
        Reasons of the cells that gave no answer.
    look
        The order and the page. None if only one cell was asked, which has sorted its answer.
    """
    if look is None:
        page = [(cell, host) for cell, cell_hosts in cells.items() for host in cell_hosts.rows]
        vm_filter = VmFilter()
    else:
        page, vm_filter = look.page(_sort_hosts(fun, cells, look)), look.vms
    out = {
        display_name(cell, host): _row(cells[cell].raw_rows[host], vm_filter)
        for cell, host in page
        if host in cells[cell].rows
    }
    return {**out, **_collect_extras(fun, cells, reasons_by_cell)}


def _sort_hosts(fun: str, cells: Mapping[str, Hosts], look: Look) -> list[tuple[str, str]]:
    """
    Return ``(cell, host)`` in order.

    By id, unresponsive hosts keep their places. Otherwise pages would overlap or miss hosts, as
    each cell is asked for its first hosts only.
    """
    rows = {(cell, host) for cell, cell_hosts in cells.items() for host in cell_hosts.rows}
    sort_value = _MOST[fun].get(look.sort)
    if sort_value is not None:
        return sorted(
            rows,
            key=lambda cell_host: (
                -sort_value(cells[cell_host[0]].rows[cell_host[1]]),
                _place(cell_host),
            ),
        )
    if not look.vms.is_narrow:
        for cell, cell_hosts in cells.items():
            rows |= {
                (cell, host) for host in (*cell_hosts.extras.unreachable, *cell_hosts.extras.failed)
            }
    return sorted(rows, key=_place)


def _place(cell_host: tuple[str, str]) -> tuple[bool, str, str]:
    cell, host = cell_host
    return (*_local_first(cell), host)


def _local_first(cell: str) -> tuple[bool, str]:
    return cell != LOCAL, cell


def _row(row: Any, vm_filter: VmFilter) -> Any:
    return vm_filter.shown(row) if vm_filter.fields and isinstance(row, dict) else row


def _collect_extras(
    fun: str, cells: Mapping[str, Hosts], reasons_by_cell: Mapping[str, str]
) -> dict[str, Any]:
    unreachable_hosts = [
        display_name(c, host)
        for c, cell_hosts in sorted(cells.items())
        for host in cell_hosts.extras.unreachable
    ]
    reasons_by_host = {
        display_name(cell, host): reason
        for cell, cell_hosts in sorted(cells.items())
        for host, reason in cell_hosts.extras.failed.items()
    }
    reasons_by_host |= {
        hosts_pattern(cell): reason for cell, reason in sorted(reasons_by_cell.items())
    }
    out = {
        "unreachable": unreachable_hosts,
        "failed": reasons_by_host,
        "duplicates": _duplicates(fun, cells),
    }
    out["last_seen"] = {
        display_name(cell, host): names
        for cell, cell_hosts in sorted(cells.items())
        for host, names in cell_hosts.extras.last_seen.items()
    }
    return {key: value for key, value in out.items() if value}


def _duplicates(fun: str, cells: Mapping[str, Hosts]) -> dict[str, list[str]]:
    """Return the hosts of each VM that several hosts of a cell, or several cells, have."""
    out = {
        name: [display_name(cell, host) for host in hosts]
        for cell, cell_hosts in cells.items()
        for name, hosts in cell_hosts.extras.duplicates.items()
    }
    hosts_by_name: dict[str, dict[str, list[str]]] = {}
    for cell, cell_hosts in cells.items():
        for host, row in cell_hosts.rows.items():
            for name in _names(fun, row):
                hosts_by_name.setdefault(name, {}).setdefault(cell, []).append(
                    display_name(cell, host)
                )
    hosts_across_cells = {
        vm: sum(hosts_by_cell.values(), [])
        for vm, hosts_by_cell in hosts_by_name.items()
        if len(hosts_by_cell) > 1
    }
    return {name: sorted(hosts) for name, hosts in sorted({**out, **hosts_across_cells}.items())}


def _names(fun: str, row: Any) -> list[str]:
    if fun == "virt.list":
        return [name for names in row.values() for name in names]
    return list(row.vm_info if fun == "virt.query" else getattr(row, "vms", ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class NameSearch:
    """
    The masters' reports about one name.

    reports_by_cell
        Reports by cell.
    failed
        Reasons of the cells that gave no report.
    """

    name: str
    reports_by_cell: Mapping[str, NameReport] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)

    def cell(self) -> str:
        """Return the cell with the VM; raise NameTaken if several have it, NoSuchVm if none has."""
        cells = self._having()
        if len(cells) > 1:
            raise NameTaken(
                f"VM {self.name!r} is in several cells, {' and '.join(cells)}: choose one, "
                f"as in cell={cells[0]}"
            )
        if cells:
            self._refuse_doubtful(cells[0])
            return cells[0]
        searched_text = f"in any of {', '.join(sorted(self.reports_by_cell)) or 'no cells'}"
        failures_text = "; ".join(reason for _cell, reason in sorted(self.failed.items()))
        raise NoSuchVm(
            self.name, searched_text + (f" (not asked: {failures_text})" if failures_text else "")
        )

    def _refuse_doubtful(self, cell: str) -> None:
        """Raise NameTaken if a cell's VM may be a stale definition of another cell's VM."""
        states = self.reports_by_cell[cell].hosts.values()
        if any(state in RUNNING_STATES for state in states):
            return
        doubtful_hosts = [
            f"{display_name(other_cell, host)} ({reason})"
            for other_cell, report in sorted(self.reports_by_cell.items())
            for host, reason in report.may_have.items()
            if other_cell != cell
        ]
        if doubtful_hosts:
            raise NameTaken(
                f"VM {self.name!r} was last seen on {' and '.join(doubtful_hosts)}, and "
                f"{_describe_cell(cell)} has a VM of that name, too; try again when the host can "
                f"be asked, or say which one is meant: cell={cell}"
            )

    def _having(self) -> list[str]:
        """Return the cells that have the VM; else those with a trace; else those that may."""
        reports = sorted(self.reports_by_cell.items())
        kinds = (
            [cell for cell, report in reports if report.hosts],
            [cell for cell, report in reports if report.traces or report.order],
            [cell for cell, report in reports if report.may_have],
        )
        return next((cells for cells in kinds if cells), [])

    def refuse_taken(self, *, force: bool) -> None:
        """Raise NameTaken if a cell has the VM or, without ``force``, may have it."""
        for cell, report in sorted(self.reports_by_cell.items()):
            host_ids = [*report.hosts, *report.traces]
            if host_ids:
                hosts = " and ".join(display_name(cell, host) for host in sorted(host_ids))
                raise NameTaken(f"VM {self.name!r} is on {hosts} already; choose another name")
            if report.order:
                raise NameTaken(
                    f"the master of {_describe_cell(cell)} works on VM {self.name!r}, or was "
                    f"killed while it did ({report.order}); remove what is left: salt-run "
                    f"virt.purge {self.name} cell={cell}"
                )
        doubts = [
            f"{display_name(c, h)} ({reason})"
            for c, o in self.reports_by_cell.items()
            for h, reason in o.may_have.items()
        ]
        doubts += [failure for _cell, failure in sorted(self.failed.items())]
        if doubts and not force:
            raise NameTaken(
                f"VM {self.name!r} may be on hosts that cannot be asked: {'; '.join(doubts)}; wait "
                "until these answer, give each cell a prefix of its own, or, if you know that "
                "there is no such VM, give force=True"
            )


def _describe_cell(cell: str) -> str:
    return "this cell" if cell == LOCAL else f"cell {cell}"
