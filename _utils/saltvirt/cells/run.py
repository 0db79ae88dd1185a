"""Run a call of the runner on a master with cells: route it, and merge the answers."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from saltvirt.cells import answers, cellclient, cellside, merging, registry, routes
from saltvirt.cells.answers import NameReport
from saltvirt.cells.registry import LOCAL, CellFailed
from saltvirt.cells.routes import Call
from saltvirt.cluster import orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, listing
from saltvirt.core import arguments, locks, terminal, vmcommands, vmfilter
from saltvirt.core.errors import BadArgument, MasterError, VirtError

# Calls the function on this master.
RunHere = Callable[[Call], Any]


def command(
    opts: Mapping[str, Any], events: Any, jid: str | None, call: Call, run_here: RunHere
) -> Any:
    """
    Run a call in its cell or on this master, and return its result; raise VirtError.

    events, jid
        Salt's ``__jid_event__``, and the id of this job; None outside one.
    run_here
        Runs the call on this master.
    """
    quiet = bool(call.arguments.get("quiet"))
    return _TopMaster(Cloud.of(opts, events, "cells", quiet, is_reading=True), jid, run_here).does(
        call
    )


class _TopMaster:
    """One command on a master that has cells, or is one."""

    def __init__(self, cloud: Cloud, jid: str | None, run_here: RunHere) -> None:
        self._cloud, self._jid, self._own = cloud, jid, run_here
        self._cells = registry.from_settings(cloud.settings)
        # For searches only: a new VM needs a valid option.
        self._prefix = registry.search_prefix(cloud.settings)

    @functools.cached_property
    def _has_own(self) -> bool:
        return bool(inventory.allowed_hosts(self._cloud))

    def does(self, call: Call) -> Any:
        """Run a call where it belongs."""
        if call.fun in routes.MERGED and self._cells and call.cell != LOCAL:
            return self._merged(call)
        cell, cell_call = routes.resolve_cell(call, self._cells)
        if cell == LOCAL:
            return self._here(cell_call)
        cell = cell or self._cell_of(cell_call)
        names = cell_call.new_names()
        if not names:
            return self._at(cell, cell_call)
        with self._alone_with(names):
            return self._new(cell, cell_call, names)

    @contextlib.contextmanager
    def _alone_with(self, names: Sequence[str]) -> Iterator[None]:
        """Keep other commands of this master from making VMs of these names, in any cell."""
        folder = Path(self._cloud.opts["cachedir"]) / "salt-virt" / "names"
        with contextlib.ExitStack() as stack:
            # The command itself refuses a name given twice.
            for name in sorted({*names}) if self._cells else ():
                lock = locks.hold_lock(folder / f"{name}.lock", wait=False)
                if stack.enter_context(lock) is None:
                    raise orders.taken_error(name, "deployed")
            yield

    def _here(self, call: Call) -> Any:
        for name in call.new_names():
            registry.refuse_foreign(
                name, registry.own_prefix(self._cloud.settings), "of this master"
            )
        with cellside.hold_job_lock(self._cloud.opts, self._jid):
            return self._own(call)

    def _at(self, cell: str, call: Call) -> Any:
        """Run a call in a cell or on this master."""
        if cell == LOCAL:
            return self._here(call)
        entry, opts = self._cells[cell], self._cloud.opts
        try:
            if call.fun in routes.QUESTIONS:
                return routes.rename_hosts(call, cell, cellclient.ask(entry, opts, call))
            return routes.rename_hosts(
                call, cell, cellclient.ask_by_job(entry, opts, call, self._begun(cell))
            )
        except CellFailed as error:
            table = getattr(error, "table", {})
            error.table = routes.rename_hosts(call, cell, {**table, "error": str(error)})
            raise

    def _begun(self, cell: str) -> Callable[[str], None]:
        return lambda jid: self._cloud.progress("At work", detail=f"cell {cell}, its job {jid}")

    def _cell_of(self, call: Call) -> str:
        """Return the cell of a call that names none."""
        if call.several:
            return self._cell_of_several(call.several)
        name = call.vm or call.alone
        if name is None:
            return self._cell_of_new(call)
        named_cell = registry.find_cell(name, self._cells, self._prefix)
        if named_cell is not None or not self._cells:
            return named_cell or LOCAL
        return LOCAL if call.alone else self._sought(name, [*self._cells, LOCAL]).cell()

    def _cell_of_several(self, patterns: Sequence[str]) -> str:
        """Return the cell that the prefixes of all these names and globs mean."""
        if not self._cells:
            return LOCAL
        cells = {
            registry.find_cell(vmcommands.literal_start(pattern), self._cells, self._prefix)
            for pattern in patterns
        }
        if len(cells) == 1 and (cell := cells.pop()) is not None:
            return cell
        raise BadArgument(
            "cell",
            "a call about several VMs goes to one cell; name it: "
            f"{', '.join((*sorted(self._cells), LOCAL))}",
        )

    def _cell_of_new(self, call: Call) -> str:
        names = call.new_names()
        cells = {registry.find_cell(name, self._cells, self._prefix) for name in names}
        if len(cells) > 1:
            raise BadArgument(
                "name", "one call makes VMs in one cell only; call once for each cell"
            )
        (named_cell,) = cells or {None}
        if named_cell or not names or self._has_own or not self._cells:
            return named_cell or LOCAL
        raise BadArgument(
            "cell",
            "this master has no hypervisors of its own, so name the cell of the VM: "
            f"{', '.join(sorted(self._cells))}",
        )

    def _new(self, cell: str, call: Call, names: Sequence[str]) -> Any:
        """Make VMs in a cell, after a check that no other cell has their names."""
        prefix = (
            registry.own_prefix(self._cloud.settings) if cell == LOCAL else self._prefix_of(cell)
        )
        where = "of this master" if cell == LOCAL else f"in cell {cell}"
        for name in names:
            registry.refuse_foreign(name, prefix, where)
        force = arguments.boolean("force", call.arguments.get("force", False))
        for search in self._elsewhere(names, cell):
            search.refuse_taken(force=force)
        return self._at(cell, call)

    def _elsewhere(self, names: Sequence[str], cell: str) -> list[merging.NameSearch]:
        """Search the other cells that may have these names, all but the cell that gets the VMs."""
        other_cells = {
            other_cell
            for other_cell in (LOCAL, *self._cells)
            if other_cell != cell
            and any(registry.may_have(self._prefix_of(other_cell), name) for name in names)
        }
        return self._all_sought(names, other_cells) if other_cells else []

    def _prefix_of(self, cell: str) -> str:
        return self._prefix if cell == LOCAL else self._cells[cell].prefix

    def _sought(self, name: str, cells: Sequence[str]) -> merging.NameSearch:
        return self._all_sought([name], cells)[0]

    def _all_sought(self, names: Sequence[str], cells: Any) -> list[merging.NameSearch]:
        """Search cells for names, all in parallel."""
        call = Call(fun="virt.find", arguments={"name": list(names)})
        answers_by_cell, errors_by_cell = self._asked(dict.fromkeys(cells, call), self._found_here)
        reports_by_cell = _read_reports(answers_by_cell, errors_by_cell, names)
        reasons_by_cell = {cell: str(error) for cell, error in errors_by_cell.items()}
        return [
            merging.NameSearch(
                name=name,
                reports_by_cell={cell: reports[name] for cell, reports in reports_by_cell.items()},
                failed=reasons_by_cell,
            )
            for name in names
        ]

    def _found_here(self, call: Call) -> Any:
        return cellside.find(self._cloud, call.arguments["name"])

    def _asked(
        self, calls: Mapping[str, Call], run_here: RunHere
    ) -> tuple[dict[str, Any], dict[str, VirtError]]:
        """Ask cells, and this master if it has hypervisors, in parallel; report their errors."""
        self._cloud.progress("Asked", detail=terminal.count_text(len(calls), "cell"))

        def at(cell: str) -> Callable[[], Any]:
            call = calls[cell]
            if cell == LOCAL:
                return lambda: run_here(call)
            return lambda: cellclient.ask(self._cells[cell], self._cloud.opts, call)

        asked_cells = [cell for cell in calls if cell != LOCAL or self._has_own]
        answers_by_cell, errors_by_cell = cellclient.run_for_cells(
            {cell: at(cell) for cell in asked_cells}
        )
        for error in errors_by_cell.values():
            self._cloud.progress("Asked", detail=str(error))
        return answers_by_cell, errors_by_cell

    def _merged(self, call: Call) -> Any:
        """Return the merged answers of all cells."""
        calls = routes.questions(call, self._cells, has_own=self._has_own)
        answers_by_cell, errors_by_cell = self._asked(calls, self._own)
        if call.fun == "virt.find":
            names = arguments.names("name", call.arguments["name"])
            return _merge_reports(
                _read_reports(answers_by_cell, errors_by_cell, names), errors_by_cell
            )
        rows: dict[str, answers.Hosts] = {}
        for cell, answer in answers_by_cell.items():
            try:
                rows[cell] = answers.hosts(cell, call.fun, answer, is_plain=_is_plain(calls[cell]))
            except VirtError as error:
                errors_by_cell[cell] = error
        if not rows:
            reasons = "; ".join(str(error) for _cell, error in sorted(errors_by_cell.items()))
            raise MasterError(reasons or "there are no hypervisors, and no cells")
        look = _look(call) if len(calls) > 1 else None
        return merging.merge_answers(
            call.fun, rows, cellclient.describe_errors(errors_by_cell), look
        )


def _read_reports(
    answers_by_cell: Mapping[str, Any], errors_by_cell: dict[str, VirtError], names: Sequence[str]
) -> dict[str, dict[str, NameReport]]:
    """Return cells' reports by name; add a cell with an invalid answer to the errors."""
    out: dict[str, dict[str, NameReport]] = {}
    for cell, answer in answers_by_cell.items():
        try:
            reports = answers.read(cell, dict[str, NameReport], answer)
            if set(reports) != set(names):
                raise answers.bad_answer_error(cell, "it is not of the names that it was asked")
            out[cell] = reports
        except VirtError as error:
            errors_by_cell[cell] = error
    return out


def _merge_reports(
    reports_by_cell: Mapping[str, Mapping[str, NameReport]], errors_by_cell: Mapping[str, VirtError]
) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for cell, reports in reports_by_cell.items():
        for name, report in reports.items():
            summary = out.setdefault(
                name, {"hosts": {}, "traces": [], "may_have": {}, "orders": {}}
            )
            summary["hosts"] |= {
                routes.display_name(cell, host): state for host, state in report.hosts.items()
            }
            summary["traces"] += [routes.display_name(cell, host) for host in report.traces]
            summary["may_have"] |= {
                routes.display_name(cell, h): reason for h, reason in report.may_have.items()
            }
            summary["orders"] |= {cell: report.order} if report.order else {}
    if not out and errors_by_cell:
        raise MasterError("; ".join(str(error) for _cell, error in sorted(errors_by_cell.items())))
    reasons_by_cell = cellclient.describe_errors(errors_by_cell)
    return {
        **out,
        **(
            {"failed": {merging.hosts_pattern(c): w for c, w in reasons_by_cell.items()}}
            if reasons_by_cell
            else {}
        ),
    }


def _is_plain(call: Call) -> bool:
    """Return whether a listing asks for each host's whole answer."""
    return not any(call.arguments.get(key) for key in ("name", "state", "tag", "fields"))


def _look(call: Call) -> listing.Look:
    keywords, is_info = call.arguments, call.fun == "virt.host_info"
    vms = {key: keywords.get(key) for key in ("name", "state", "tag")}
    host_fields = keywords.get("fields") if is_info else None
    return listing.from_call(
        None,
        vmfilter.from_call(**vms, fields=host_fields, known=listing.HOST_FIELDS),
        sort=keywords.get("sort"),
        limit=keywords.get("limit"),
        offset=keywords.get("offset") or 0,
    )
