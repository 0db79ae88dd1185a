"""Decide a call's cell, each cell's part of a call, and hosts' names: pure functions."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from saltvirt.cells.registry import LOCAL, Entry, parse_cell, parse_cells
from saltvirt.core import arguments, vmcommands
from saltvirt.core.errors import BadArgument
from saltvirt.vm.create.master.many import manyrequest

# Functions that all cells answer; their answers are merged.
MERGED = frozenset(("virt.list", "virt.query", "virt.host_info", "virt.find"))
# Functions that change nothing, and end in seconds.
QUESTIONS = MERGED | vmcommands.quick()
# Functions that go to a VM's cell, and the argument with the VM's name.
NAMED = vmcommands.vm_arguments()
# Functions for names that no VM of any cell may have.
NEW = frozenset(("virt.init", "virt.init_many", "virt.clone", "virt.rename", "virt.undo"))
# Functions for a name that need not be a VM's yet.
_NAME_ALONE = frozenset(("virt.authorize", "virt.unauthorize"))
# Functions that this master answers itself: about its own jobs, and about its commands.
_OF_CELL = frozenset(("virt.cell_job", "virt.help"))
# Arguments that may be CELL/HOST.
_HOSTS = ("host", "target", "keep")
# Functions with answers, and error tables, by host.
_BY_HOST = {*NAMED, "virt.init", "virt.images", "virt.image_pull", "virt.image_prune"}
_BY_HOST -= {"virt.settle", "virt.console_log"}
_EXTRA_KEYS = ("unreachable", "failed", "duplicates", "last_seen", "details")
# Fields of an answer that map each VM to the host where it is, was or will be.
_OF_VMS = ("built", "exists", "plan", "moved", "moves", "elsewhere", "purged")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """
    A call of a runner function.

    fun
        As users call it, such as ``virt.init``.
    arguments, args
        By name; by position, if the function takes any number.
    leading
        Names of the arguments that stand before ``args``.
    cell
        The value of ``cell=``.
    """

    fun: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    args: tuple[Any, ...] = ()
    leading: tuple[str, ...] = ()
    cell: Any = None

    @property
    def vm(self) -> str | None:
        """The only existing VM that the call is about, None if there is none."""
        name = self.arguments.get(NAMED.get(self.fun, ""))
        return str(name) if name is not None and not self.several else None

    @property
    def several(self) -> list[str]:
        """The names and globs of a call about several existing VMs; empty for other calls."""
        command = vmcommands.COMMANDS.get(self.fun.removeprefix("virt."))
        if command is None or not command.takes_several:
            return []
        return vmcommands.several_names(self.arguments.get("name"))

    @property
    def alone(self) -> str | None:
        """The name that the call is about, with or without such a VM; None for other functions."""
        return str(self.arguments.get("name")) if self.fun in _NAME_ALONE else None

    def as_given(self) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and named arguments; leading ones go before ``args``."""
        keywords = dict(self.arguments)
        if not self.args:
            return [], keywords
        return [*(keywords.pop(name, None) for name in self.leading), *self.args], keywords

    def new_names(self) -> list[str]:
        """Return the names of the VMs that the call would make, or that a VM would get."""
        if self.fun not in NEW:
            return []
        if self.fun == "virt.rename":
            return [arguments.vm_name(self.arguments.get("new_name"))]
        if self.fun != "virt.init_many":
            return [arguments.vm_name(self.arguments.get("name"))]
        keywords = self.arguments
        if keywords.get("vms") is not None:
            return [
                arguments.vm_name(vm["name"]) for vm in manyrequest.parse_list(keywords["vms"], {})
            ]
        return manyrequest.number_names(
            keywords.get("name"), keywords.get("count"), keywords.get("first", 1)
        )


def resolve_cell(call: Call, cells: Mapping[str, Entry]) -> tuple[str | None, Call]:
    """
    Return the cell that a call names, None if it names none, and the call for that cell.

    A call names its cell by ``cell=``, or by a host CELL/HOST.
    """
    if call.fun in _OF_CELL:
        return LOCAL, call
    target_cell = None if call.cell is None else parse_cell(call.cell, cells)
    keywords = dict(call.arguments)
    for key in _HOSTS:
        cell, host = split_host(keywords.get(key), cells)
        if cell is None:
            continue
        if target_cell not in (None, cell):
            raise BadArgument(
                key, f"{keywords[key]!r} is not of cell {target_cell}: a call goes to one cell"
            )
        target_cell, keywords[key] = cell, host
    return target_cell, replace(call, arguments=keywords, cell=None)


def split_host(text: Any, cells: Mapping[str, Entry]) -> tuple[str | None, Any]:
    """Return cell and host of CELL/HOST; of anything else the cell is None."""
    cell, slash, host = text.partition("/") if isinstance(text, str) else ("", "", "")
    return (parse_cell(cell, cells), host) if slash else (None, text)


def questions(call: Call, cells: Mapping[str, Entry], *, has_own: bool) -> dict[str, Call]:
    """Return each cell's part, and this master's, of a call that all of them answer."""
    keywords = _keywords_for_cell(call.arguments)
    all_cells = [*([LOCAL] if has_own else []), *sorted(cells)]
    chosen_cells = all_cells if call.cell is None else parse_cells(call.cell, cells)
    patterns = arguments.names("host", keywords.get("host"))
    hosts = (
        {cell: [] for cell in chosen_cells}
        if not patterns
        else _hosts_by_cell(patterns, chosen_cells)
    )
    common_call = replace(call, arguments=keywords, cell=None)
    if len(hosts) > 1:
        common_call = replace(common_call, arguments=_without_page(call.fun, keywords))
    if call.fun == "virt.find":
        return dict.fromkeys(hosts, replace(call, cell=None))
    return {
        cell: replace(common_call, arguments={**common_call.arguments, "host": names or None})
        for cell, names in hosts.items()
    }


def _keywords_for_cell(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a listing as cells take them."""
    if keywords.get("stream"):
        raise BadArgument(
            "stream", "hosts of a cell answer all at once; give cell=local for this master's own"
        )
    host = keywords.get("host") or keywords.get("hyper")
    return {
        **{name: value for name, value in keywords.items() if name not in ("hyper", "stream")},
        "host": host,
    }


def _hosts_by_cell(
    patterns: Collection[str], chosen_cells: Collection[str]
) -> dict[str, list[str]]:
    """Return the host patterns for each cell; a pattern without a cell is for this master."""
    out: dict[str, list[str]] = {}
    for pattern in patterns:
        cell, slash, host = pattern.partition("/")
        cell, host = (cell, host) if slash else (LOCAL, pattern)
        matching_cells = [
            chosen_cell for chosen_cell in chosen_cells if fnmatchcase(chosen_cell, cell)
        ]
        if not matching_cells:
            raise BadArgument(
                "host",
                f"{pattern!r} is of none of {', '.join(chosen_cells)}; a host of a cell is called "
                "CELL/HOST, as in 'west/hyper1' and '*/hyper1'",
            )
        for chosen_cell in matching_cells:
            out.setdefault(chosen_cell, []).append(host or "*")
    return out


def _without_page(fun: str, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that get all rows up to the page's end, with the fields to sort by."""
    out = dict(keywords)
    if keywords.get("limit") is not None:
        first = arguments.whole_number("offset", keywords.get("offset") or 0, least=0)
        out["limit"] = first + arguments.whole_number("limit", keywords["limit"])
    if "offset" in out:
        out["offset"] = 0
    if fun == "virt.host_info" and keywords.get("sort") not in (None, "host"):
        out["fields"] = None
    return out


def display_name(cell: str, host: str) -> str:
    """Return the name of a cell's host for users of this master."""
    return host if cell == LOCAL else f"{cell}/{host}"


def rename_hosts(call: Call, cell: str, data: Any) -> Any:
    """Return a cell's answer to a call, with its hosts renamed for users of this master."""
    if cell == LOCAL or not isinstance(data, dict):
        return data
    data = _name_cell_in_undo(cell, data)
    if isinstance(data.get("vms"), dict) and call.fun in NAMED:
        data = {**data, "vms": _rename_hosts_of_rows(cell, data["vms"])}
    is_by_host = call.fun in _BY_HOST and not call.several
    out = {
        key: _rename_field(cell, key, value, is_by_host=is_by_host) for key, value in data.items()
    }
    if is_by_host and "name" not in data and "error" not in data:
        return {
            key if key in _EXTRA_KEYS else display_name(cell, key): value
            for key, value in out.items()
        }
    return {**out, "cell": cell}


def _name_cell_in_undo(cell: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with the cell in the commands that undo its purges."""
    details = data.get("details")
    if not isinstance(details, dict):
        return data
    named = {
        name: {**row, "undo": f"{row['undo']} cell={cell}"}
        if isinstance(row, dict) and isinstance(row.get("undo"), str)
        else row
        for name, row in details.items()
    }
    return {**data, "details": named}


def _rename_hosts_of_rows(cell: str, rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of a command on several VMs, renamed; a cell's rows may have any form."""
    return {
        name: {**row, "host": display_name(cell, row["host"])}
        if isinstance(row, dict) and isinstance(row.get("host"), str)
        else row
        for name, row in rows.items()
    }


def _rename_field(cell: str, key: str, value: Any, *, is_by_host: bool) -> Any:
    """Return a field of an answer, with its hosts renamed."""
    if isinstance(value, str):
        return display_name(cell, value) if key in ("host", "from", "to") else value
    if isinstance(value, list):
        return [_rename_element(cell, key, element) for element in value]
    if not isinstance(value, dict):
        return value
    if key in ("hosts", "last_seen") or (key == "failed" and is_by_host):
        return {display_name(cell, str(host)): row for host, row in value.items()}
    return _rename_hosts_of_vms(cell, key, value)


def _rename_element(cell: str, key: str, element: Any) -> Any:
    """Return an element of an answer's list, renamed: a host, or a step of ``virt.rebalance``."""
    if key == "moves" and isinstance(element, dict):
        return {
            word: _rename_field(cell, word, value, is_by_host=False)
            for word, value in element.items()
        }
    return display_name(cell, str(element)) if key == "unreachable" else element


def _rename_hosts_of_vms(cell: str, key: str, by_name: dict[str, Any]) -> dict[str, Any]:
    if key in _OF_VMS:
        return {name: display_name(cell, str(host)) for name, host in by_name.items()}
    if key == "duplicates":
        return {
            name: [display_name(cell, str(h)) for h in hosts] if isinstance(hosts, list) else hosts
            for name, hosts in by_name.items()
        }
    return by_name
