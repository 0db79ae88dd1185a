"""Which calls go to a cell, what each cell is asked, and what its hosts are called: pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from saltvirt import arguments
from saltvirt.errors import BadArgument
from saltvirt.fleet.cells.known import LOCAL, Entry, asked_for, several
from saltvirt.fleet.many import asked

# What all cells are asked, and put together.
MERGED = frozenset(("virt.list", "virt.query", "virt.host_info", "virt.find"))
# What changes nothing, and is over in seconds.
QUESTIONS = MERGED | {"virt.vm_info", "virt.console_log"}
# What goes where a VM is: the argument with its name.
_OF_VM = "start stop shutdown reset pause resume purge migrate settle vm_info console_log".split()
NAMED = {**{f"virt.{fun}": "name" for fun in _OF_VM}, "virt.clone": "source"}
NEW = frozenset(("virt.init", "virt.init_many", "virt.clone"))
# What is of a name that need not be a VM's yet.
_NAME_ALONE = frozenset(("virt.authorize", "virt.unauthorize"))
# What a cell says of its own jobs.
_OF_CELL = frozenset(("virt.cell_job",))
# Arguments that may be CELL/HOST.
_HOSTS = ("host", "target", "keep")
# Whose answers, and tables of an error, are by hosts.
_BY_HOST = {*NAMED, "virt.init", "virt.images", "virt.image_pull", "virt.image_prune"}
_BY_HOST -= {"virt.settle", "virt.console_log"}
_BESIDE = ("unreachable", "failed", "duplicates", "last_seen")
# Fields of an answer that say on which host each VM is, was or will be.
_OF_VMS = ("built", "exists", "plan", "moved", "moves", "elsewhere", "purged")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """
    A call of a runner function.

    fun
        As users call it, such as ``virt.init``.

    Arguments:
        By their names.
    args
        Those of a function that takes any number.
    leading
        The names of the arguments that stand before those.
    cell
        What ``cell=`` says.
    """

    fun: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    args: tuple[Any, ...] = ()
    leading: tuple[str, ...] = ()
    cell: Any = None

    @property
    def vm(self) -> str | None:
        """The VM that it is about, which is there already; None if it is about none."""
        name = self.arguments.get(NAMED.get(self.fun, ""))
        return str(name) if name is not None else None

    @property
    def alone(self) -> str | None:
        """The name that it is about, whether or not there is such a VM."""
        return str(self.arguments.get("name")) if self.fun in _NAME_ALONE else None

    def as_given(self) -> tuple[list[Any], dict[str, Any]]:
        """Return what is given by position, and by name: what stands before others has a place."""
        given = dict(self.arguments)
        if not self.args:
            return [], given
        return [*(given.pop(name, None) for name in self.leading), *self.args], given

    def new_names(self) -> list[str]:
        """Return the names of the VMs that it would make."""
        if self.fun not in NEW:
            return []
        if self.fun != "virt.init_many":
            return [arguments.vm_name(self.arguments.get("name"))]
        given = self.arguments
        if given.get("vms") is not None:
            return [arguments.vm_name(one["name"]) for one in asked.listed(given["vms"], {})]
        return asked.names(given.get("name"), given.get("count"), given.get("first", 1))


def aimed(call: Call, cells: Mapping[str, Entry]) -> tuple[str | None, Call]:
    """
    Return the cell that a call names, and the call as that cell takes it; None if it names none.

    It names one by ``cell=``, or by a host that is called CELL/HOST.
    """
    if call.fun in _OF_CELL:
        return LOCAL, call
    where = None if call.cell is None else asked_for(call.cell, cells)
    given = dict(call.arguments)
    for key in _HOSTS:
        cell, host = parted(given.get(key), cells)
        if cell is None:
            continue
        if where not in (None, cell):
            raise BadArgument(key, f"{given[key]!r} is not of cell {where}: nothing goes across")
        where, given[key] = cell, host
    return where, replace(call, arguments=given, cell=None)


def parted(text: Any, cells: Mapping[str, Entry]) -> tuple[str | None, Any]:
    """Return cell and host of CELL/HOST; what is called otherwise is of no cell."""
    cell, sign, host = text.partition("/") if isinstance(text, str) else ("", "", "")
    return (asked_for(cell, cells), host) if sign else (None, text)


def questions(call: Call, cells: Mapping[str, Entry], *, has_own: bool) -> dict[str, Call]:
    """Return what each cell, and this master, is asked of a call that all of them answer."""
    given = _of_one(call.arguments)
    every = [*([LOCAL] if has_own else []), *sorted(cells)]
    chosen = every if call.cell is None else several(call.cell, cells)
    patterns = arguments.names("host", given.get("host"))
    hosts = {cell: [] for cell in chosen} if not patterns else _by_cell(patterns, chosen)
    plain = replace(call, arguments=given, cell=None)
    if len(hosts) > 1:
        plain = replace(plain, arguments=_unpaged(call.fun, given))
    if call.fun == "virt.find":
        return dict.fromkeys(hosts, replace(call, cell=None))
    return {
        cell: replace(plain, arguments={**plain.arguments, "host": names or None})
        for cell, names in hosts.items()
    }


def _of_one(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a look as one cell can be given them."""
    if given.get("stream"):
        raise BadArgument(
            "stream", "hosts of a cell answer all at once; give cell=local for this master's own"
        )
    host = given.get("host") or given.get("hyper")
    return {**{k: one for k, one in given.items() if k not in ("hyper", "stream")}, "host": host}


def _by_cell(patterns: Collection[str], chosen: Collection[str]) -> dict[str, list[str]]:
    """Return the hosts that each cell is asked for; one without a cell is this master's own."""
    out: dict[str, list[str]] = {}
    for pattern in patterns:
        cell, sign, host = pattern.partition("/")
        cell, host = (cell, host) if sign else (LOCAL, pattern)
        matching = [one for one in chosen if fnmatchcase(one, cell)]
        if not matching:
            raise BadArgument(
                "host",
                f"{pattern!r} is of none of {', '.join(chosen)}; a host of a cell is called "
                "CELL/HOST, as in 'west/hyper1' and '*/hyper1'",
            )
        for one in matching:
            out.setdefault(one, []).append(host or "*")
    return out


def _unpaged(fun: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that bring all that may be on the page, with what it is sorted by."""
    out = dict(given)
    if given.get("limit") is not None:
        first = arguments.whole("offset", given.get("offset") or 0, least=0)
        out["limit"] = first + arguments.whole("limit", given["limit"])
    if "offset" in out:
        out["offset"] = 0
    if fun == "virt.host_info" and given.get("sort") not in (None, "host"):
        out["fields"] = None
    return out


def told(cell: str, host: str) -> str:
    """Return what a host is called where there are cells."""
    return host if cell == LOCAL else f"{cell}/{host}"


def renamed(call: Call, cell: str, data: Any) -> Any:
    """Return what a cell answered to a call, with its hosts called as they are here."""
    if cell == LOCAL or not isinstance(data, dict):
        return data
    by_host = call.fun in _BY_HOST
    out = {key: _host(cell, key, one, by_host=by_host) for key, one in data.items()}
    if by_host and "name" not in data and "error" not in data:
        return {key if key in _BESIDE else told(cell, key): one for key, one in out.items()}
    return {**out, "cell": cell}


def _host(cell: str, key: str, one: Any, *, by_host: bool) -> Any:
    """Return what stands in a field of an answer, with its hosts called as they are here."""
    if isinstance(one, str):
        return told(cell, one) if key in ("host", "from", "to") else one
    if isinstance(one, list):
        return [_listed(cell, key, each) for each in one]
    if not isinstance(one, dict):
        return one
    if key in ("hosts", "last_seen") or (key == "failed" and by_host):
        return {told(cell, str(host)): row for host, row in one.items()}
    return _hosts_of_vms(cell, key, one)


def _listed(cell: str, key: str, one: Any) -> Any:
    """Return what stands in a list of an answer: a host, or a step of ``virt.rebalance``."""
    if key == "moves" and isinstance(one, dict):
        return {word: _host(cell, word, said, by_host=False) for word, said in one.items()}
    return told(cell, str(one)) if key == "unreachable" else one


def _hosts_of_vms(cell: str, key: str, by_name: dict[str, Any]) -> dict[str, Any]:
    if key in _OF_VMS:
        return {name: told(cell, str(host)) for name, host in by_name.items()}
    if key == "duplicates":
        return {
            name: [told(cell, str(h)) for h in hosts] if isinstance(hosts, list) else hosts
            for name, hosts in by_name.items()
        }
    return by_name
