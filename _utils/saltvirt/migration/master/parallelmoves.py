"""Move several VMs, some at once; a VM that does not move never holds up the others."""

import logging
import shlex
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from saltvirt.cluster import progress
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.whereabouts import Purpose, Whereabouts
from saltvirt.cluster.rpc.hostcommands import HostCommandFailed
from saltvirt.core.errors import BadArgument, NoHostFits, VirtError
from saltvirt.core.salt import threads
from saltvirt.migration.master import migrate
from saltvirt.migration.master.moveexecutor import MoveFailed
from saltvirt.vm.create.master.many.builds import Order, Turns

log = logging.getLogger(__name__)

# How many VMs come to a host, or leave it, at a time by default.
PER_HOST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """
    How many VMs move at a time.

    max_parallel
        In all.
    per_host
        To or from one host.
    free
        Hosts limited only by ``max_parallel``.
    """

    max_parallel: int
    per_host: int
    free: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise BadArgument for a pace at which nothing moves."""
        for argument in ("max_parallel", "per_host"):
            if getattr(self, argument) < 1:
                raise BadArgument(argument, f"{getattr(self, argument)}; at least 1")


class _Gone(VirtError):
    """A VM was removed before it was moved."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The outcome of several moves."""

    moved: dict[str, Any] = field(default_factory=dict)
    """``{name: host}``"""
    failed: dict[str, Any] = field(default_factory=dict)
    """``{name: reason}``"""
    gone: list[Any] = field(default_factory=list)
    """VMs that were removed before their turn."""
    warnings: dict[str, Any] = field(default_factory=dict)
    """``{name: problem beside its move}``"""
    is_interrupted: bool = False
    left: list[Any] = field(default_factory=list)
    """VMs that did not begin to move."""

    def has_not(self, name: str, error: Exception) -> None:
        """Add a VM that has not moved."""
        if isinstance(error, _Gone):
            self.gone.append(name)
        elif isinstance(error, VirtError):
            self.failed[name] = str(error)
        else:
            log.error("the move of %s failed", name, exc_info=error)
            self.failed[name] = f"{type(error).__name__}: {error}"

    def has_moved(self, name: str, to: str, warnings: Iterable[str | None]) -> None:
        """Add a VM that has moved, with warnings of problems beside the move, or None."""
        self.moved[name] = to
        if any(warnings):
            self.warnings[name] = "; ".join(filter(None, warnings))

    def add(self, outcome: "Outcome") -> None:
        """Add the outcome of more moves."""
        self.moved |= outcome.moved
        self.failed |= outcome.failed
        self.gone += outcome.gone
        self.warnings |= outcome.warnings
        self.is_interrupted |= outcome.is_interrupted


def move(
    cloud: Cloud,
    moves: Mapping[str, tuple[str, str]],
    *,
    pace: Pace,
    is_fixed: bool = False,
    order: Order | None = None,
    after: Callable[[str, str, str], str | None] = lambda *_move: None,
) -> Outcome:
    """
    Move VMs and return the :class:`Outcome`.

    moves
        ``{name: (from, to)}``, in the order in which they begin.
    is_fixed
        Take no host but the planned one. Defaults to trying the next best, too.
    order
        What must be over before a move begins; after a failure no other move begins, as it may
        depend on the failed one. Defaults to nothing.
    after
        Called with ``name, from, to`` of each VM that has moved; may return a warning.

    An interruption lets the moves under way come to their end, and begins no other.
    """
    return _Moves(cloud, moves, pace, order).all(is_fixed=is_fixed, after=after)


class _Moves:
    """The moves of one call."""

    def __init__(
        self,
        cloud: Cloud,
        moves: Mapping[str, tuple[str, str]],
        pace: Pace,
        order: Order | None,
    ) -> None:
        self._cloud, self._moves, self._is_ordered = cloud, moves, order is not None
        self._count = min(pace.max_parallel, len(moves))
        self._turns = Turns(moves, pace.per_host, {h: pace.max_parallel for h in pace.free}, order)
        self._out, self._lock = Outcome(), threading.Lock()
        self._progress_pace = progress.Pace(len(moves))

    def all(self, *, is_fixed: bool, after: Callable[[str, str, str], str | None]) -> Outcome:
        """Make all moves, or those that begin before an interruption."""
        if not self._moves:
            return self._out
        work = partial(self._work, is_fixed, after)
        with ThreadPoolExecutor(self._count) as pool:
            jobs = self._waited(pool, work)
        for job in jobs:
            job.result()
        out = self._out
        out.moved = {name: out.moved[name] for name in self._moves if name in out.moved}
        ended = {*out.moved, *out.failed, *out.gone}
        out.left = [name for name in self._moves if name not in ended]
        if out.is_interrupted:
            out.failed |= dict.fromkeys(out.left, _NOT_BEGUN)
        return out

    def _waited(self, pool: Executor, work: Callable[[], None]) -> Sequence[Future[None]]:
        """Return all jobs once they are over; if interrupted, await only those under way."""
        jobs: list[Future[None]] = []
        is_told = True
        while len(jobs) < self._count or not all(job.done() for job in jobs):
            try:
                if is_told:
                    # The first VM moves while the last thread starts: interruptions count, too.
                    while len(jobs) < self._count:
                        jobs.append(threads.begin(pool, work))
                    wait(jobs)
                    continue
                self._turns.stop()
                for name in self._turns.under_way():
                    detail = _GOING_ON.format(*map(shlex.quote, (self._moves[name][0], name)))
                    self._progress(name)("Going on", detail=detail)
                is_told = True
            except (KeyboardInterrupt, SystemExit):
                # At every interruption: the moves would go on without this process, too.
                self._out.is_interrupted, is_told = True, False
        return jobs

    def _work(self, is_fixed: bool, after: Callable[[str, str, str], str | None]) -> None:
        while (name := self._turns.next()) is not None:
            source, to = self._moves[name]
            try:
                vm_cloud = replace(self._cloud, progress=self._progress(name))
                result = _move_one(vm_cloud, name, source, to, is_fixed)
                warnings = [result.get("warning"), _run_after(after, name, source, result["to"])]
                self._out.has_moved(name, result["to"], warnings)
            except Exception as error:  # of any kind: the outcome of the others must be reported
                self._out.has_not(name, error)
            finally:
                self._is_over(name)

    def _is_over(self, name: str) -> None:
        has_moved = name in self._out.moved
        if self._is_ordered and not has_moved:
            self._turns.stop()
        self._turns.over(name, has_moved=has_moved)
        ended_count = len(self._out.moved) + len(self._out.failed) + len(self._out.gone)
        if ended_count < self._progress_pace.total:
            with self._lock:
                self._cloud.progress("Done", detail=self._progress_pace.text(ended_count, "VMs"))

    def _progress(self, name: str) -> Callable[..., None]:
        def report(stage: str, **figures: Any) -> None:
            with self._lock:
                self._cloud.progress(f"{name}: {stage}", **figures)

        return report


_NOT_BEGUN = "not begun, the command was interrupted"
_GOING_ON = (
    "interrupted: this move is finished, no other begins; salt {} virt.migrate_cancel {} ends it"
)


def _run_after(after: Callable[[str, str, str], str | None], *move: str) -> str | None:
    """Return the warning for a VM that has moved; a failure here takes nothing back."""
    try:
        return after(*move)
    except Exception as error:  # a full disk of the master, say
        log.error("what follows the move of %s failed", move[0], exc_info=error)
        return f"it has moved, but what follows failed: {type(error).__name__}: {error}"


def _move_one(cloud: Cloud, name: str, source: str, to: str, is_fixed: bool) -> dict[str, Any]:
    """Move a VM as planned, or to the next best host; return where it is now."""
    for target in (to, to if is_fixed else None):
        try:
            return migrate.migrate(cloud, name, target, {}, source)
        except (HostCommandFailed, MoveFailed, NoHostFits) as error:
            failure, vm = error, locate(cloud, name, Purpose.REPORT)
        arrived = _find_arrival(vm, source)
        if arrived is not None and (not is_fixed or arrived == to):
            warning = f"it is on {arrived}, though its move seemed to fail: {failure}"
            return {"to": arrived, "warning": warning}
        _refuse_gone(vm)
        # The only host would refuse again, unless the VM was stopped during the move.
        if is_fixed and _vm_state(vm, source) != "shutdown":
            break
        cloud.progress("Placing", detail=f"{to} did not take it: {failure}")
    raise failure


def _vm_state(vm: Whereabouts, host: str) -> str | None:
    vm_presence = vm.presence_by_host.get(host)
    return vm_presence.state if vm_presence is not None else None


def _refuse_gone(vm: Whereabouts) -> None:
    """Raise _Gone if all hosts report that they do not have the VM, and await none."""
    is_known = any(
        vm_presence.is_its_own or vm_presence.building
        for vm_presence in vm.presence_by_host.values()
    )
    if not is_known and not vm.unasked:
        raise _Gone(f"VM {vm.name!r} was removed")


def _find_arrival(vm: Whereabouts, source: str) -> str | None:
    """
    Return the host that has a VM now, if that is not the source; None if that is not sure.

    A move is over when the source itself reports that it does not have the VM any more: the target
    lists an arriving VM, too.
    """
    hosts_with_vm = [
        host for host, vm_presence in vm.presence_by_host.items() if vm_presence.is_its_own
    ]
    is_sure = source in vm.presence_by_host
    return (
        hosts_with_vm[0]
        if len(hosts_with_vm) == 1 and hosts_with_vm[0] != source and is_sure
        else None
    )
