"""Print lines of progress while a command runs."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from saltvirt.core import terminal, wire
from saltvirt.core.units import human

_LONGEST = 400
_UNITS = ((2 * 86400, 86400, "days"), (2 * 3600, 3600, "h"), (120, 60, "min"), (-1, 1, "s"))


def callback(
    opts: Mapping[str, Any], events: Any, name: str, quiet: bool = False
) -> Callable[..., None]:
    """
    Return ``progress(stage, **figures)``, which prints a line of progress at once.

    opts
        With ``--out`` only the data is wanted, so nothing is printed.
    events
        Salt's ``__jid_event__`` of a runner, None outside a job.
    """
    is_silent = quiet or bool(opts.get("output")) or events is None

    def progress(stage: str, **figures: Any) -> None:
        if not is_silent:
            message = {"message": text(name, stage, figures), "outputter": "virt_progress"}
            # In a process that runs jobs as threads, such as the reactor, all jobs share this
            # global: the bus of the job that began last, which is gone when that job is over.
            with contextlib.suppress(ReferenceError):
                events.fire_event(message, "progress")
            _flush()

    return progress


def lines(opts: Mapping[str, Any], events: Any) -> Callable[[Mapping[str, Any]], None] | None:
    """
    Return ``line(data)``, which prints data as one line of JSON at once; None if not wanted.

    opts
        With ``--out`` or ``--out-file`` the whole answer is wanted.
    events
        Salt's ``__jid_event__``; lines are printed where Salt prints the job's answer, such as in
        salt-run, and do not go over the master's bus.
    """
    print_func = events and events.print_func
    if print_func is None or opts.get("output") or opts.get("output_file"):
        return None

    def line(data: Mapping[str, Any]) -> None:
        print_func("stream", {"message": json.dumps(data), "outputter": "virt_progress"})
        _flush()

    return line


def format_s(seconds: float) -> str:
    """Return a duration in words: ``40 s``, ``3 min``, ``2 h``, ``5 days``."""
    _from, size, unit = next(row for row in _UNITS if seconds >= row[0])
    return f"{seconds // size:.0f} {unit}"


def format_age(seconds: float | None) -> str | None:
    """Return an age for a table: ``40 s``, ``3 min``, ``2 h``, ``5 d``; None if unknown."""
    return None if seconds is None else format_s(max(0.0, seconds)).replace("days", "d")


class Pace:
    """How many of a number of things are done, and how long the rest will take at that pace."""

    def __init__(self, total: int) -> None:
        """Start the clock."""
        self.total, self._begun = total, time.monotonic()

    def text(self, done_count: int, noun: str) -> str:
        """Return ``12 of 40 VMs, about 3 min to go``; ``done_count`` is at least 1."""
        remaining = self.total - done_count
        left_s = (time.monotonic() - self._begun) / done_count * remaining
        to_go = f", about {format_s(left_s)} to go" if remaining > 0 else ""
        return f"{done_count:,} of {self.total:,} {noun}{to_go}"


def _flush() -> None:
    """Flush a line that Salt has printed, so that files and pipes get it now."""
    # The reader may be gone; printing the answer finds out what that means for the command.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()


def text(name: str, stage: str, figures: Mapping[str, Any]) -> str:
    """Return one line for a stage of a deployment, with names made safe for a terminal."""
    return terminal.message(f"{name}: {stage}{_detail(stage, figures)}", _LONGEST)


def _detail(stage: str, figures: Mapping[str, Any]) -> str:
    if figures.get("detail"):
        return f" ({figures['detail']})"
    kind = stage.rpartition(": ")[2]  # "web1: Moving" is of one VM among several
    if kind == "Fetching":
        done_bytes, total_bytes = _number(figures, "done_bytes"), _number(figures, "total_bytes")
        if total_bytes > 0:
            return f" {100 * done_bytes // total_bytes:.0f} % of {human(total_bytes)}"
        return f" {human(done_bytes)}"
    if kind == "Moving":
        return _moving(figures)
    return ""


def _moving(figures: Mapping[str, Any]) -> str:
    rate, remaining_bytes = _number(figures, "rate_bytes_s"), _number(figures, "remaining_bytes")
    passes = _number(figures, "passes")
    if passes > 1:
        # The guest rewrites memory that was sent already, which is sent again. Each pass has its
        # own total, so there is no overall percentage.
        return (
            f" {human(rate)}/s, {human(remaining_bytes)} to go in pass {passes:.0f} over its memory"
        )
    # libvirt's percentage is of the memory, without what the disks have still to send.
    percent = min(_number(figures, "percent"), 99 if remaining_bytes else 100)
    # libvirt reports no rate of disks.
    pace = f" {human(rate)}/s," if rate else ""
    return f"{_phase(figures)} {percent:.0f} %,{pace} {human(remaining_bytes)} to go"


def _phase(figures: Mapping[str, Any]) -> str:
    """Return what is being sent: first the disks, then the memory; empty if unknown."""
    if _number(figures, "memory_bytes"):
        return " its memory"
    return " its disks" if _number(figures, "disk_bytes") else ""


def _number(figures: Mapping[str, Any], name: str) -> float:
    """Return a number that a host reports, 0 for anything else: only this line depends on it."""
    try:
        number: float = wire.read_recorded(float, figures.get(name))
    except ValueError:
        return 0
    return number
