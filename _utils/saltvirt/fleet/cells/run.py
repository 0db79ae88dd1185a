"""A call of the runner on a master that has cells: where it goes, and what comes of all answers."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from saltvirt import arguments, locks, terminal, vmfilter
from saltvirt.errors import BadArgument, MasterError, VirtError
from saltvirt.fleet import inventory, looking, orders
from saltvirt.fleet.cells import answers, asking, here, known, merging, routes
from saltvirt.fleet.cells.answers import Found
from saltvirt.fleet.cells.known import LOCAL, CellFailed
from saltvirt.fleet.cells.routes import Call
from saltvirt.fleet.cloud import Cloud

# Calls the function here, with these arguments.
Own = Callable[[Call], Any]


def command(opts: Mapping[str, Any], events: Any, jid: str | None, call: Call, own: Own) -> Any:
    """
    Return what a call returns, wherever it is done; raise VirtError.

    opts
        The master's configuration.
    events, jid
        Salt's ``__jid_event__``, and the id of this job; None outside one.
    own
        What does it here.
    """
    quiet = bool(call.arguments.get("quiet"))
    return _Top(Cloud.of(opts, events, "cells", quiet, is_reading=True), jid, own).does(call)


class _Top:
    """One command on a master that has cells, or is one."""

    def __init__(self, cloud: Cloud, jid: str | None, own: Own) -> None:
        self._cloud, self._jid, self._own = cloud, jid, own
        self._cells = known.of(cloud.settings)
        # By it VMs are looked for; a new one needs the option itself.
        self._prefix = known.looked_for(cloud.settings)

    @functools.cached_property
    def _has_own(self) -> bool:
        return bool(inventory.allowed(self._cloud))

    def does(self, call: Call) -> Any:
        """Do it where it belongs."""
        if call.fun in routes.MERGED and self._cells and call.cell != LOCAL:
            return self._merged(call)
        cell, aimed = routes.aimed(call, self._cells)
        if cell == LOCAL:
            return self._here(aimed)
        cell = cell or self._cell_of(aimed)
        names = aimed.new_names()
        if not names:
            return self._at(cell, aimed)
        with self._alone_with(names):
            return self._new(cell, aimed, names)

    @contextlib.contextmanager
    def _alone_with(self, names: Sequence[str]) -> Iterator[None]:
        """Have no other command of this master make VMs of these names, in whatever cell."""
        folder = Path(self._cloud.opts["cachedir"]) / "salt-virt" / "names"
        with contextlib.ExitStack() as stack:
            # A name that is asked for twice is for who makes them to refuse.
            for name in sorted({*names}) if self._cells else ():
                lock = locks.held(folder / f"{name}.lock", wait=False)
                if stack.enter_context(lock) is None:
                    raise orders.taken(name, "deployed")
            yield

    def _here(self, call: Call) -> Any:
        for name in call.new_names():
            known.refuse_foreign(name, known.own_prefix(self._cloud.settings), "of this master")
        with here.noted(self._cloud.opts, self._jid):
            return self._own(call)

    def _at(self, cell: str, call: Call) -> Any:
        """Have a cell, or this master, do it."""
        if cell == LOCAL:
            return self._here(call)
        at, opts = self._cells[cell], self._cloud.opts
        try:
            if call.fun in routes.QUESTIONS:
                return routes.renamed(call, cell, asking.question(at, opts, call))
            return routes.renamed(call, cell, asking.order(at, opts, call, self._begun(cell)))
        except CellFailed as error:
            table = getattr(error, "table", {})
            error.table = routes.renamed(call, cell, {**table, "error": str(error)})
            raise

    def _begun(self, cell: str) -> Callable[[str], None]:
        return lambda jid: self._cloud.progress("At work", detail=f"cell {cell}, its job {jid}")

    def _cell_of(self, call: Call) -> str:
        """Return the cell that a call is about, without having been told."""
        name = call.vm or call.alone
        if name is None:
            return self._cell_of_new(call)
        by_name = known.whose(name, self._cells, self._prefix)
        if by_name is not None or not self._cells:
            return by_name or LOCAL
        return LOCAL if call.alone else self._sought(name, [*self._cells, LOCAL]).cell()

    def _cell_of_new(self, call: Call) -> str:
        names = call.new_names()
        cells = {known.whose(name, self._cells, self._prefix) for name in names}
        if len(cells) > 1:
            raise BadArgument("name", "VMs of several cells are not made at once; say them apart")
        (by_name,) = cells or {None}
        if by_name or not names or self._has_own or not self._cells:
            return by_name or LOCAL
        raise BadArgument(
            "cell",
            "this master has no hypervisors of its own, so say in which cell the VM is to be: "
            f"{', '.join(sorted(self._cells))}",
        )

    def _new(self, cell: str, call: Call, names: Sequence[str]) -> Any:
        """Make VMs in a cell, whose names are nobody else's."""
        prefix = known.own_prefix(self._cloud.settings) if cell == LOCAL else self._prefix_of(cell)
        where = "of this master" if cell == LOCAL else f"in cell {cell}"
        for name in names:
            known.refuse_foreign(name, prefix, where)
        force = arguments.boolean("force", call.arguments.get("force", False))
        for sought in self._elsewhere(names, cell):
            sought.refuse_taken(force=force)
        return self._at(cell, call)

    def _elsewhere(self, names: Sequence[str], cell: str) -> list[merging.Sought]:
        """Return what all but the cell that gets VMs say of their names, if they may have them."""
        others = {
            other
            for other in (LOCAL, *self._cells)
            if other != cell and any(known.may_have(self._prefix_of(other), name) for name in names)
        }
        return self._all_sought(names, others) if others else []

    def _prefix_of(self, cell: str) -> str:
        return self._prefix if cell == LOCAL else self._cells[cell].prefix

    def _sought(self, name: str, cells: Sequence[str]) -> merging.Sought:
        return self._all_sought([name], cells)[0]

    def _all_sought(self, names: Sequence[str], cells: Any) -> list[merging.Sought]:
        """Ask cells for names, at once."""
        call = Call(fun="virt.find", arguments={"name": list(names)})
        found, failed = self._asked(dict.fromkeys(cells, call), self._found_here)
        read = _read(found, failed, names)
        why = {cell: str(error) for cell, error in failed.items()}
        return [
            merging.Sought(
                name=name, found={cell: one[name] for cell, one in read.items()}, failed=why
            )
            for name in names
        ]

    def _found_here(self, call: Call) -> Any:
        return here.find(self._cloud, call.arguments["name"])

    def _asked(
        self, calls: Mapping[str, Call], own: Own
    ) -> tuple[dict[str, Any], dict[str, VirtError]]:
        """Ask cells, and this master if it has hypervisors, at once; say who is silent."""
        self._cloud.progress("Asked", detail=terminal.counted(len(calls), "cell"))

        def at(cell: str) -> Callable[[], Any]:
            call = calls[cell]
            if cell == LOCAL:
                return lambda: own(call)
            return lambda: asking.question(self._cells[cell], self._cloud.opts, call)

        wanted = [cell for cell in calls if cell != LOCAL or self._has_own]
        found, failed = asking.each({cell: at(cell) for cell in wanted})
        for error in failed.values():
            self._cloud.progress("Asked", detail=str(error))
        return found, failed

    def _merged(self, call: Call) -> Any:
        """Return what all say, put together."""
        calls = routes.questions(call, self._cells, has_own=self._has_own)
        found, failed = self._asked(calls, self._own)
        if call.fun == "virt.find":
            names = arguments.names("name", call.arguments["name"])
            return _found_of_all(_read(found, failed, names), failed)
        rows: dict[str, answers.Hosts] = {}
        for cell, said in found.items():
            try:
                rows[cell] = answers.hosts(cell, call.fun, said, is_plain=_is_plain(calls[cell]))
            except VirtError as error:
                failed[cell] = error
        if not rows:
            why = "; ".join(str(error) for _cell, error in sorted(failed.items()))
            raise MasterError(why or "there are no hypervisors, and no cells")
        look = _look(call) if len(calls) > 1 else None
        return merging.shown(call.fun, rows, asking.failures(failed), look)


def _read(
    found: Mapping[str, Any], failed: dict[str, VirtError], names: Sequence[str]
) -> dict[str, dict[str, Found]]:
    """Return what cells say of names; one whose answer is none of these is put to the failed."""
    out: dict[str, dict[str, Found]] = {}
    for cell, said in found.items():
        try:
            read = answers.read(cell, dict[str, Found], said)
            if set(read) != set(names):
                raise answers.not_understood(cell, "it is not of the names that it was asked")
            out[cell] = read
        except VirtError as error:
            failed[cell] = error
    return out


def _found_of_all(
    read: Mapping[str, Mapping[str, Found]], failed: Mapping[str, VirtError]
) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for cell, names in read.items():
        for name, one in names.items():
            there = out.setdefault(name, {"hosts": {}, "traces": [], "may_have": {}, "orders": {}})
            there["hosts"] |= {routes.told(cell, host): state for host, state in one.hosts.items()}
            there["traces"] += [routes.told(cell, host) for host in one.traces]
            there["may_have"] |= {routes.told(cell, h): why for h, why in one.may_have.items()}
            there["orders"] |= {cell: one.order} if one.order else {}
    if not out and failed:
        raise MasterError("; ".join(str(one) for _cell, one in sorted(failed.items())))
    why = asking.failures(failed)
    return {**out, **({"failed": {merging.whole(c): w for c, w in why.items()}} if why else {})}


def _is_plain(call: Call) -> bool:
    """Return whether a look asks for all there is of each host."""
    return not any(call.arguments.get(key) for key in ("name", "state", "tag", "fields"))


def _look(call: Call) -> looking.Look:
    given, is_info = call.arguments, call.fun == "virt.host_info"
    vms = {key: given.get(key) for key in ("name", "state", "tag")}
    shown = given.get("fields") if is_info else None
    return looking.asked(
        None,
        vmfilter.of(**vms, fields=shown, known=looking.HOST_FIELDS),
        sort=given.get("sort"),
        limit=given.get("limit"),
        offset=given.get("offset") or 0,
    )
