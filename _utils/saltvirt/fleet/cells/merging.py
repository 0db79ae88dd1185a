"""What cells say, put together: hosts of all of them, in one order; where a VM is: pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt.errors import NameTaken, NoSuchVm
from saltvirt.fleet.cells.answers import Found, Hosts
from saltvirt.fleet.cells.known import LOCAL
from saltvirt.fleet.cells.routes import told
from saltvirt.fleet.looking import OF_INFO, OF_QUERY, Look
from saltvirt.fleet.whereabouts import ON
from saltvirt.vmfilter import VmFilter

# The most first.
_MOST: Mapping[str, Mapping[str, Callable[[Any], float]]] = {
    "virt.list": {"vms": lambda row: sum(map(len, row.values()))},
    "virt.query": OF_QUERY,
    "virt.host_info": OF_INFO,
}


def whole(cell: str) -> str:
    """Return what all hosts of a cell are called that nothing is known of."""
    return f"{cell}/*"


def shown(
    fun: str, cells: Mapping[str, Hosts], failed: Mapping[str, str], look: Look | None
) -> dict[str, Any]:
    """
    Return ``{host: row}`` of all cells, and what stands beside it.

    failed
        The cells that said nothing of their hosts, and why.
    look
        None for what is sorted, and a page, already: what a cell says that was asked alone.
    """
    if look is None:
        page = [(cell, host) for cell, one in cells.items() for host in one.rows]
        narrowed = VmFilter()
    else:
        page, narrowed = look.page(_ordered(fun, cells, look)), look.vms
    out = {
        told(cell, host): _row(cells[cell].said[host], narrowed)
        for cell, host in page
        if host in cells[cell].rows
    }
    return {**out, **_beside(fun, cells, failed)}


def _ordered(fun: str, cells: Mapping[str, Hosts], look: Look) -> list[tuple[str, str]]:
    """
    Return the cells and ids of hosts in their order.

    By their ids, silent ones have a place as well: were the next one on the page instead, some
    would be on two pages and some on none, as each cell is asked for its first hosts alone.
    """
    rows = {(cell, host) for cell, one in cells.items() for host in one.rows}
    by = _MOST[fun].get(look.sort)
    if by is not None:
        return sorted(rows, key=lambda at: (-by(cells[at[0]].rows[at[1]]), _place(at)))
    if not look.vms.is_narrow:
        for cell, one in cells.items():
            rows |= {(cell, host) for host in (*one.beside.unreachable, *one.beside.failed)}
    return sorted(rows, key=_place)


def _place(at: tuple[str, str]) -> tuple[bool, str, str]:
    cell, host = at
    return (*_own_first(cell), host)


def _own_first(cell: str) -> tuple[bool, str]:
    return cell != LOCAL, cell


def _row(said: Any, narrowed: VmFilter) -> Any:
    return narrowed.shown(said) if narrowed.fields and isinstance(said, dict) else said


def _beside(fun: str, cells: Mapping[str, Hosts], failed: Mapping[str, str]) -> dict[str, Any]:
    silent = [told(c, host) for c, one in sorted(cells.items()) for host in one.beside.unreachable]
    broken = {
        told(cell, host): why
        for cell, one in sorted(cells.items())
        for host, why in one.beside.failed.items()
    }
    broken |= {whole(cell): why for cell, why in sorted(failed.items())}
    out = {"unreachable": silent, "failed": broken, "duplicates": _duplicates(fun, cells)}
    out["last_seen"] = {
        told(cell, host): names
        for cell, one in sorted(cells.items())
        for host, names in one.beside.last_seen.items()
    }
    return {key: one for key, one in out.items() if one}


def _duplicates(fun: str, cells: Mapping[str, Hosts]) -> dict[str, list[str]]:
    """Return the hosts of VMs that several hosts of a cell have, or several cells."""
    out = {
        name: [told(cell, host) for host in hosts]
        for cell, one in cells.items()
        for name, hosts in one.beside.duplicates.items()
    }
    where: dict[str, dict[str, list[str]]] = {}
    for cell, one in cells.items():
        for host, row in one.rows.items():
            for name in _names(fun, row):
                where.setdefault(name, {}).setdefault(cell, []).append(told(cell, host))
    across = {n: sum(there.values(), []) for n, there in where.items() if len(there) > 1}
    return {name: sorted(hosts) for name, hosts in sorted({**out, **across}.items())}


def _names(fun: str, row: Any) -> list[str]:
    if fun == "virt.list":
        return [name for names in row.values() for name in names]
    return list(row.vm_info if fun == "virt.query" else getattr(row, "vms", ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """
    What masters say of one name.

    found
        By cell.
    failed
        The cells that said nothing, and why.
    """

    name: str
    found: Mapping[str, Found] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)

    def cell(self) -> str:
        """Return the cell that has the VM; raise NameTaken if several, NoSuchVm if none has."""
        having = self._having()
        if len(having) > 1:
            raise NameTaken(
                f"VM {self.name!r} is in several cells, {' and '.join(having)}: say which is "
                f"meant, as in cell={having[0]}"
            )
        if having:
            self._refuse_doubtful(having[0])
            return having[0]
        asked = f"in any of {', '.join(sorted(self.found)) or 'no cells'}"
        silent = "; ".join(why for _cell, why in sorted(self.failed.items()))
        raise NoSuchVm(self.name, asked + (f" (not asked: {silent})" if silent else ""))

    def _refuse_doubtful(self, cell: str) -> None:
        """Raise NameTaken if what a cell has may be a stale definition of another cell's VM."""
        states = self.found[cell].hosts.values()
        if any(state in ON for state in states):
            return
        others = [
            f"{told(other, host)} ({reason})"
            for other, found in sorted(self.found.items())
            for host, reason in found.may_have.items()
            if other != cell
        ]
        if others:
            raise NameTaken(
                f"VM {self.name!r} was on {' and '.join(others)} when that was last asked, and "
                f"{_called(cell)} has a VM of that name, too; try again when it can be asked, or "
                f"say which is meant, as in cell={cell}"
            )

    def _having(self) -> list[str]:
        """Return the cells that have the VM; else those with a trace, else that may have it."""
        found = sorted(self.found.items())
        kinds = (
            [cell for cell, one in found if one.hosts],
            [cell for cell, one in found if one.traces or one.order],
            [cell for cell, one in found if one.may_have],
        )
        return next((cells for cells in kinds if cells), [])

    def refuse_taken(self, *, force: bool) -> None:
        """Raise NameTaken if a cell has a VM of that name, or may have one and cannot be asked."""
        for cell, one in sorted(self.found.items()):
            there = [*one.hosts, *one.traces]
            if there:
                hosts = " and ".join(told(cell, host) for host in sorted(there))
                raise NameTaken(f"VM {self.name!r} is on {hosts} already; choose another name")
            if one.order:
                raise NameTaken(
                    f"VM {self.name!r} is being worked on by the master of {_called(cell)}, or was "
                    f"when that was killed ({one.order}); remove what is left: salt-run virt.purge "
                    f"{self.name} cell={cell}"
                )
        unknown = [
            f"{told(c, h)} ({w})" for c, o in self.found.items() for h, w in o.may_have.items()
        ]
        unknown += [why for _cell, why in sorted(self.failed.items())]
        if unknown and not force:
            raise NameTaken(
                f"VM {self.name!r} may be where nobody can be asked: {'; '.join(unknown)}; wait "
                "until that answers, give each cell a beginning of its names (prefix), or, if you "
                "know that there is no such VM, give force=True"
            )


def _called(cell: str) -> str:
    return "this cell" if cell == LOCAL else f"cell {cell}"
