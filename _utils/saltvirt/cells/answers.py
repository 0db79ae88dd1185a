"""Decode cells' answers into this project's types: pure functions."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from saltvirt.cells.registry import CellFailed
from saltvirt.core import terminal, wire
from saltvirt.core.crypto import signed
from saltvirt.placement import shownvms
from saltvirt.placement.answers import HostInfo
from saltvirt.placement.shownvms import FoundVms, FullInfo

EXTRA_KEYS = ("unreachable", "failed", "duplicates", "last_seen")
# Salt's message about a function that it lacks.
UNAVAILABLE = "is not available"
_LONGEST = 300
# Each value takes some 70 bytes of memory. A thousand hosts with 50 VMs each have half as many.
MOST_VALUES = 8_000_000
# A minion id that is safe to show, and unambiguous after "CELL/".
_HOST = re.compile(r"[^\s/\x00-\x1f\x7f-\x9f]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NameReport:
    """
    A master's report about one name.

    hosts
        The state of the VM on each host that has it.
    traces
        Hosts that have a part of the VM: it is on its way, or a leftover.
    may_have
        Hosts that cannot be asked and may have the VM, each with the reason.
    order
        The phase of that master's order for the name, running or interrupted.
    """

    hosts: dict[str, str] = field(default_factory=dict)
    traces: list[str] = field(default_factory=list)
    may_have: dict[str, str] = field(default_factory=dict)
    order: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingExtras:
    """The entries of a listing beside its hosts."""

    unreachable: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    duplicates: dict[str, list[str]] = field(default_factory=dict)
    last_seen: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """
    A cell's answer about its hosts.

    rows
        Decoded, by host.
    raw_rows
        The same as plain data, to be shown.
    """

    rows: dict[str, Any]
    raw_rows: dict[str, Any]
    extras: ListingExtras


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """
    The state of a cell's job.

    state
        ``running``, ``over``, or ``lost``: the job does not run, and has left no answer.
    """

    state: str
    answer: Any = None


def read_body(cell: str, text: bytes) -> Any:
    """Return salt-api's answer to one call, the only element of ``return``."""
    try:
        body_text = text.decode()
        if terminal.most_values(body_text) > MOST_VALUES:
            raise bad_answer_error(cell, f"it has more than {MOST_VALUES:,} values")
        document = json.loads(body_text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise bad_answer_error(cell, "it is not JSON; is the URL that of its salt-api?") from None
    answers = document.get("return") if isinstance(document, dict) else None
    if not isinstance(answers, list) or len(answers) != 1:
        raise bad_answer_error(cell, "it has not one 'return'; is the URL that of its salt-api?")
    try:
        return terminal.clean(answers[0])
    except ValueError as exc:
        raise bad_answer_error(cell, str(exc)) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def bad_answer_error(cell: str, reason: str) -> CellFailed:
    """Return the error of a cell with an answer that is not understood."""
    return CellFailed(cell, f"its answer is not understood: {terminal.one_line(reason, _LONGEST)}")


def too_old_error(cell: str) -> CellFailed:
    """Return the error of a cell that lacks a function."""
    return CellFailed(
        cell, "has an older version of Salt Virt: sync it there, and restart its salt-api"
    )


def _is_cut(answer: Any) -> bool:
    """Return whether Salt has cut an answer that was too large for an event."""
    if isinstance(answer, dict):
        return any(map(_is_cut, answer.values()))
    return bool(answer == signed.CUT)


def _cut_or_bad_answer_error(cell: str, answer: Any, reason: str) -> CellFailed:
    if _is_cut(answer):
        reason = (
            "Salt has left some of it out, as it was larger than max_event_size: raise that option "
            "in its master's configuration, and restart salt-master and salt-api there; or ask for "
            "less"
        )
    return bad_answer_error(cell, reason)


def read_function_answer(cell: str, fun: str, answer: Any) -> Any:
    """Return the answer of one of this project's functions; raise CellFailed if it failed."""
    answer = read(cell, Any, answer)
    if isinstance(answer, str) and UNAVAILABLE in answer:
        raise too_old_error(cell)
    if isinstance(answer, dict) and "error" in answer:
        error = CellFailed(cell, terminal.one_line(str(answer["error"]), 2000))
        error.table = {
            key: value for key, value in answer.items() if key not in ("error", "retcode")
        }
        raise error
    if isinstance(answer, str) and answer.startswith(("Exception occurred", "Traceback")):
        raise CellFailed(cell, f"{fun} failed there: {terminal.one_line(answer[-300:])}")
    return answer


def read(cell: str, shape: Any, answer: Any) -> Any:
    """Return an answer decoded as a type; raise CellFailed if it does not match."""
    try:
        return (
            wire.read(cell, "", shape, answer)
            if shape is Any
            else wire.read_recorded(shape, answer)
        )
    except wire.BadAnswer:
        raise bad_answer_error(cell, "a number in it is not one of 64 bits") from None
    except ValueError as exc:
        raise _cut_or_bad_answer_error(cell, answer, str(exc)) from None


def hosts(cell: str, fun: str, answer: Any, *, is_plain: bool) -> Hosts:
    """
    Decode a cell's answer about its hosts.

    fun
        ``virt.list``, ``virt.query`` or ``virt.host_info``.
    is_plain
        Whether the call asked for each host's whole answer.
    """
    if not isinstance(answer, dict):
        raise _cut_or_bad_answer_error(
            cell, answer, f"it is {type(answer).__name__}, not a mapping"
        )
    extras = read(cell, ListingExtras, {key: answer[key] for key in EXTRA_KEYS if key in answer})
    plain_rows = {host: row for host, row in answer.items() if host not in EXTRA_KEYS}
    invalid_host = next((host for host in plain_rows if not _HOST.fullmatch(host)), None)
    if invalid_host is not None:
        raise bad_answer_error(cell, f"{invalid_host!r} is no host's id")
    rows = read(cell, dict[str, _shape(fun, is_plain=is_plain)], _complete_rows(fun, plain_rows))  # type: ignore[misc]
    if fun == "virt.query":
        plain_rows = {
            host: shownvms.select_vms(row, rows[host].vm_info) for host, row in plain_rows.items()
        }
    return Hosts(rows=rows, raw_rows=plain_rows, extras=extras)


def _shape(fun: str, *, is_plain: bool) -> Any:
    if fun == "virt.list":
        return dict[str, list[str]]
    if fun == "virt.query":
        return FullInfo if is_plain else FoundVms
    return HostInfo if is_plain else dict[str, Any]


def _complete_rows(fun: str, plain_rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return rows of a narrowed query as hosts send them: add the names that the cell left out."""
    if fun != "virt.query":
        return dict(plain_rows)
    return {
        host: {"names": [], **row} if isinstance(row, dict) else row
        for host, row in plain_rows.items()
    }
