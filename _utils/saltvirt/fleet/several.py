"""Move several VMs, some at once; one that does not move never holds up the others."""

import contextvars
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt.errors import BadArgument, NoHostFits, VirtError
from saltvirt.fleet import inventory, migrate, sightings
from saltvirt.fleet.cloud import Cloud
from saltvirt.fleet.effects import MoveFailed
from saltvirt.fleet.hosts import DeployError
from saltvirt.fleet.progress import longish

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """How many VMs are to move, and when the first began."""

    total: int
    at: float

    def say(self, cloud: Cloud, out: "Outcome", lock: threading.Lock) -> None:
        """Say how many are done, and how long the others will take at that pace."""
        done = len(out.moved) + len(out.failed) + len(out.gone)
        left = self.total - done
        if self.total > 1 and left > 0:
            left_s = (time.monotonic() - self.at) / done * left
            detail = f"{done} of {self.total} VMs, about {longish(left_s)} to go"
            with lock:
                cloud.progress("Done", detail=detail)


class _Gone(VirtError):
    """A VM was removed before it was moved."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What has become of several moves."""

    moved: dict[str, Any] = field(default_factory=dict)
    """``{name: host}``"""
    failed: dict[str, Any] = field(default_factory=dict)
    """``{name: why}``"""
    gone: list[Any] = field(default_factory=list)
    """Those that were removed before it was their turn."""
    warnings: dict[str, Any] = field(default_factory=dict)
    """``{name: what went wrong beside its move}``"""
    is_interrupted: bool = False

    def has_not(self, name: str, error: Exception) -> None:
        """Take in one VM that has not moved."""
        if isinstance(error, _Gone):
            self.gone.append(name)
        else:
            self.failed[name] = str(error)

    def has_moved(self, name: str, to: str, why: Iterable[str | None]) -> None:
        """Take in one VM that has moved, with what went wrong beside that, None for nothing."""
        self.moved[name] = to
        if any(why):
            self.warnings[name] = "; ".join(filter(None, why))

    def add(self, other: "Outcome") -> None:
        """Take in the outcome of more moves."""
        self.moved |= other.moved
        self.failed |= other.failed
        self.gone += other.gone
        self.warnings |= other.warnings
        self.is_interrupted |= other.is_interrupted


def move(
    cloud: Cloud,
    moves: Mapping[str, tuple[str, str]],
    *,
    max_parallel: int,
    is_fixed: bool = False,
    after: Callable[[str, str, str], str | None] = lambda *_move: None,
) -> Outcome:
    """
    Move VMs and return the :class:`Outcome`.

    moves
        ``{name: (from, to)}``, in the order in which they begin.
    is_fixed
        No other host will do. Defaults to the next best one if that refuses.
    after
        Called with ``name, from, to`` of each that has moved; what it returns is a warning.

    An interruption lets those that are under way come to their end, and begins no other.
    """
    if max_parallel < 1:
        raise BadArgument("max_parallel", f"{max_parallel}; at least 1")
    out, lock, begun = Outcome(), threading.Lock(), _Begun(total=len(moves), at=time.monotonic())

    def progress_of(name: str) -> Callable[..., None]:
        def one(stage: str, **figures: Any) -> None:
            with lock:
                cloud.progress(f"{name}: {stage}", **figures)

        return one

    def carry(name: str, source: str, to: str) -> None:
        try:
            own = replace(cloud, progress=progress_of(name))
            done = _moved(own, name, source, to, is_fixed)
            why = [done.get("warning"), after(name, source, done["to"])]
        except VirtError as error:
            out.has_not(name, error)
        else:
            out.has_moved(name, done["to"], why)
        begun.say(cloud, out, lock)

    # Salt's functions find their loader through context variables, which threads do not inherit.
    with ThreadPoolExecutor(max_parallel) as pool:
        jobs = {
            name: pool.submit(contextvars.copy_context().run, carry, name, source, to)
            for name, (source, to) in moves.items()
        }

        def going_on(name: str) -> None:
            detail = _GOING_ON.format(moves[name][0], name)
            progress_of(name)("Going on", detail=detail)

        _wait(pool, jobs, out, going_on)
    out.moved = {name: out.moved[name] for name in moves if name in out.moved}
    return out


def _wait(
    pool: ThreadPoolExecutor,
    jobs: Mapping[str, Future[None]],
    out: Outcome,
    going_on: Callable[[str], None],
) -> None:
    """Wait for all jobs, once interrupted for those alone that run."""
    is_told = True
    while left := {name: job for name, job in jobs.items() if not job.done()}:
        try:
            if not is_told:
                pool.shutdown(wait=False, cancel_futures=True)
                for name in [name for name, job in left.items() if job.running()]:
                    going_on(name)
                is_told = True
            else:
                wait(left.values())
        except (KeyboardInterrupt, SystemExit):
            # However often: a move that nobody waits for would go on all the same.
            out.is_interrupted, is_told = True, False
    for name, job in jobs.items():
        if job.cancelled():
            out.failed[name] = "not begun, the command was interrupted"
        elif job.exception() is not None:
            # Whatever it is, what the others did must be said.
            log.error("the move of %s failed", name, exc_info=job.exception())
            out.failed[name] = f"{type(job.exception()).__name__}: {job.exception()}"


_GOING_ON = (
    "interrupted: this move is finished, no other begins; salt {} virt.migrate_cancel {} ends it"
)


def _moved(cloud: Cloud, name: str, source: str, to: str, is_fixed: bool) -> dict[str, Any]:
    """Move one VM as planned; if that host refuses, to the next best. Return where it is now."""
    for target in (to, to if is_fixed else None):
        try:
            return migrate.migrate(cloud, name, target, {}, source)
        except (DeployError, MoveFailed, NoHostFits) as error:
            failure, there = error, inventory.look_for(cloud, name)
        arrived = _arrived(there, source)
        if arrived is not None and (not is_fixed or arrived == to):
            why = f"it is on {arrived}, though its move seemed to fail: {failure}"
            return {"to": arrived, "warning": why}
        _refuse_gone(there, name)
        # Asked again, the only host says the same, unless the VM was stopped under the move.
        if is_fixed and _state(there, source) != "shutdown":
            break
        cloud.progress("Placing", detail=f"{to} did not take it: {failure}")
    raise failure


def _state(there: inventory.Survey, host: str) -> str | None:
    one = there.answers.get(host)
    return one.state if one is not None else None


def _refuse_gone(there: inventory.Survey, name: str) -> None:
    """Raise _Gone if all hosts say that they do not have a VM, and that none is on its way."""
    seen = sightings.of_presence(there.answers)
    is_known = any(one.is_its_own or one.building for one in seen.values())
    if not is_known and not there.reasons():
        raise _Gone(f"VM {name!r} was removed")


def _arrived(there: inventory.Survey, source: str) -> str | None:
    """
    Return the host that has a VM if that is no longer the one it had, None if that is not sure.

    A move is over when the source does not have the VM any more, which it must say itself: the
    target lists one that only arrives too.
    """
    seen = sightings.of_presence(there.answers)
    having = [host for host, one in seen.items() if one.is_its_own]
    is_sure = source in there.answers
    return having[0] if len(having) == 1 and having[0] != source and is_sure else None
