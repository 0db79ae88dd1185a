"""What cells answer, made into the house's types, as what hosts answer is: pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from saltvirt import signed, terminal, wire
from saltvirt.fleet.cells.known import CellFailed
from saltvirt.placement import shownvms
from saltvirt.placement.answers import HostInfo
from saltvirt.placement.shownvms import FoundVms, FullInfo

BESIDE = ("unreachable", "failed", "duplicates", "last_seen")
# What Salt says of a function that it does not have.
OLD = "is not available"
_LONGEST = 300
# Each takes some 70 bytes of memory. A thousand hosts with 50 VMs each have half as many.
MOST_VALUES = 8_000_000
# What Salt takes for a minion's id, as far as it may be shown, and stand behind "CELL/".
_HOST = re.compile(r"[^\s/\x00-\x1f\x7f-\x9f]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """
    What a master says of one name.

    hosts
        The state of the VM on each host that has it.
    traces
        Hosts that have something of it: it is on its way, or was left.
    may_have
        Hosts that cannot be asked and may have it, and why.
    order
        How far a command of that master is with it, or has come that was killed.
    """

    hosts: dict[str, str] = field(default_factory=dict)
    traces: list[str] = field(default_factory=list)
    may_have: dict[str, str] = field(default_factory=dict)
    order: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What stands beside the answers of hosts."""

    unreachable: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    duplicates: dict[str, list[str]] = field(default_factory=dict)
    last_seen: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """
    What a cell says of its hosts.

    rows
        By host, as types.
    said
        The same as it came, for whoever shows it.
    """

    rows: dict[str, Any]
    said: dict[str, Any]
    beside: Beside


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """
    How a job of a cell is.

    state
        ``running``, ``over``, or ``lost``: it does not run, and has left no answer.
    answer
        That of the function.
    """

    state: str
    answer: Any = None


def body(cell: str, text: bytes) -> Any:
    """Return what salt-api has answered to one call: the one answer in ``return``."""
    try:
        plain = text.decode()
        if terminal.most_values(plain) > MOST_VALUES:
            raise not_understood(cell, f"it has more than {MOST_VALUES:,} values")
        said = json.loads(plain, parse_constant=_refused)
    except (ValueError, RecursionError):
        raise not_understood(cell, "it is not JSON; is the URL that of its salt-api?") from None
    answers = said.get("return") if isinstance(said, dict) else None
    if not isinstance(answers, list) or len(answers) != 1:
        raise not_understood(cell, "it has not one 'return'; is the URL that of its salt-api?")
    try:
        return terminal.clean(answers[0])
    except ValueError as exc:
        raise not_understood(cell, str(exc)) from None


def _refused(name: str) -> NoReturn:
    raise ValueError(name)


def not_understood(cell: str, why: str) -> CellFailed:
    """Return the error of a cell that says what is no answer."""
    return CellFailed(cell, f"its answer is not understood: {terminal.one_line(why, _LONGEST)}")


def too_old(cell: str) -> CellFailed:
    """Return the error of a cell that lacks a function."""
    return CellFailed(
        cell, "has an older version of Salt Virt: sync it there, and restart its salt-api"
    )


def _is_cut(answer: Any) -> bool:
    """Return whether Salt has left something out of an answer, which was too large for an event."""
    if isinstance(answer, dict):
        return any(map(_is_cut, answer.values()))
    return bool(answer == signed.CUT)


def _no_answer(cell: str, answer: Any, why: str) -> CellFailed:
    if _is_cut(answer):
        why = (
            "Salt has left some of it out, as it was larger than max_event_size: raise that option "
            "in its master's configuration, and restart salt-master and salt-api there; or ask for "
            "less"
        )
    return not_understood(cell, why)


def of_function(cell: str, fun: str, answer: Any) -> Any:
    """Return what a function of ours has answered; raise CellFailed with what it failed by."""
    answer = read(cell, Any, answer)
    if isinstance(answer, str) and OLD in answer:
        raise too_old(cell)
    if isinstance(answer, dict) and "error" in answer:
        error = CellFailed(cell, terminal.one_line(str(answer["error"]), 2000))
        error.table = {key: one for key, one in answer.items() if key not in ("error", "retcode")}
        raise error
    if isinstance(answer, str) and answer.startswith(("Exception occurred", "Traceback")):
        raise CellFailed(cell, f"{fun} failed there: {terminal.one_line(answer[-300:])}")
    return answer


def read(cell: str, shape: Any, answer: Any) -> Any:
    """Return an answer as its type says; raise CellFailed if it is not of that."""
    try:
        return wire.read(cell, "", shape, answer) if shape is Any else wire.recorded(shape, answer)
    except wire.BadAnswer:
        raise not_understood(cell, "a number in it is not one of 64 bits") from None
    except ValueError as exc:
        raise _no_answer(cell, answer, str(exc)) from None


def hosts(cell: str, fun: str, answer: Any, *, is_plain: bool) -> Hosts:
    """
    Return what a cell says of its hosts.

    fun
        ``virt.list``, ``virt.query`` or ``virt.host_info``.
    is_plain
        Whether all was asked for of each host.
    """
    if not isinstance(answer, dict):
        raise _no_answer(cell, answer, f"it is {type(answer).__name__}, not a mapping")
    beside = read(cell, Beside, {key: answer[key] for key in BESIDE if key in answer})
    said = {host: row for host, row in answer.items() if host not in BESIDE}
    wrong = next((host for host in said if not _HOST.fullmatch(host)), None)
    if wrong is not None:
        raise not_understood(cell, f"{wrong!r} is no host's id")
    rows = read(cell, dict[str, _shape(fun, is_plain=is_plain)], _completed(fun, said))  # type: ignore[misc]
    if fun == "virt.query":
        said = {host: shownvms.shown(row, rows[host].vm_info) for host, row in said.items()}
    return Hosts(rows=rows, said=said, beside=beside)


def _shape(fun: str, *, is_plain: bool) -> Any:
    if fun == "virt.list":
        return dict[str, list[str]]
    if fun == "virt.query":
        return FullInfo if is_plain else FoundVms
    return HostInfo if is_plain else dict[str, Any]


def _completed(fun: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """Return rows of a narrowed query as hosts tell them: its master leaves the names out."""
    if fun != "virt.query":
        return dict(said)
    return {
        host: {"names": [], **row} if isinstance(row, dict) else row for host, row in said.items()
    }
