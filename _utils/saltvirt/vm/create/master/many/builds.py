"""Build the VMs of one plan, a limited number at a time on each host and in all."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.progress import Pace
from saltvirt.core.errors import VirtError
from saltvirt.core.journal.records import LockedRecord
from saltvirt.core.salt import threads
from saltvirt.vm.create.master import hostbuild, offers
from saltvirt.vm.create.master.many.manyrequest import Call, Outcome
from saltvirt.vm.create.master.many.planning import DeployPlan


class Order(Protocol):
    """An order in which names may begin, as :class:`saltvirt.placement.sequence.Sequence`."""

    def ready(self, waiting: Collection[str]) -> Iterable[str]:
        """Return which waiting names may begin now."""

    def begin(self, name: str) -> None:
        """Record that a name begins."""

    def end(self, name: str, *, has_moved: bool) -> None:
        """Record that a name is over."""


class _AnyOrder:
    """No order: each name may begin at any time."""

    def ready(self, waiting: Collection[str]) -> Iterable[str]:
        return waiting

    def begin(self, name: str) -> None:
        pass

    def end(self, name: str, *, has_moved: bool) -> None:
        pass


class Turns:
    """
    The names that wait, and how many are under way on each host.

    waiting
        ``{name: hosts}``, in order; a name begins when all its hosts have a free turn.
    per_host
        How many turns a host has.
    more
        ``{host: turns}`` of hosts with another number.
    order
        What must be over before a name begins. Defaults to nothing.
    """

    def __init__(
        self,
        waiting: Mapping[str, Sequence[str]],
        per_host: int,
        more: Mapping[str, int] | None = None,
        order: Order | None = None,
    ) -> None:
        self._waiting, self._per_host = dict(waiting), per_host
        self._more, self._order = more or {}, order or _AnyOrder()
        self._busy: Counter[str] = Counter()
        self._at: dict[str, Sequence[str]] = {}
        self._changed = threading.Condition()

    def next(self) -> str | None:
        """
        Return the next name when its hosts have a turn for it.

        None if no name waits any more, or if no waiting name may begin and nothing under way could
        change that.
        """
        with self._changed:
            while self._waiting:
                for name in self._order.ready(self._waiting):
                    hosts = self._waiting[name]
                    if all(map(self._is_free, hosts)):
                        del self._waiting[name]
                        self._order.begin(name)
                        self._take(name, hosts)
                        return name
                if not self._at:
                    return None
                self._changed.wait()
        return None

    @contextmanager
    def on(self, name: str, host: str) -> Iterator[None]:
        """Give a name its turn on this host, if need be after a wait for a free one."""
        with self._changed:
            if self._at.get(name) != (host,):
                self._give(name)
                self._changed.wait_for(lambda: self._is_free(host))
                self._take(name, (host,))
        yield

    def over(self, name: str, *, has_moved: bool = True) -> None:
        """End a name's turn."""
        with self._changed:
            self._order.end(name, has_moved=has_moved)
            self._give(name)

    def under_way(self) -> list[str]:
        """Return the names that have begun, and are not over."""
        with self._changed:
            return list(self._at)

    def stop(self) -> list[str]:
        """Let no more names begin; return those that waited."""
        with self._changed:
            waiting_names = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        return waiting_names

    def _is_free(self, host: str) -> bool:
        return self._busy[host] < self._more.get(host, self._per_host)

    def _take(self, name: str, hosts: Sequence[str]) -> None:
        self._busy.update(hosts)
        self._at[name] = hosts

    def _give(self, name: str) -> None:
        hosts = self._at.pop(name, None)
        if hosts is not None:
            self._busy.subtract(hosts)
            self._changed.notify_all()


log = logging.getLogger(__name__)

# Stages of single VMs that take long enough to be shown among many.
_SHOWN = frozenset({"Fetching"})
_INTERRUPTED = "not begun, the command was interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A name that this call holds: its order, and the stack that releases it."""

    order: LockedRecord
    stack: ExitStack


class Builds:
    """The builds of one call."""

    def __init__(
        self, cloud: Cloud, call: Call, deploy_plan: DeployPlan, claims: Mapping[str, Claim]
    ) -> None:
        self._cloud, self._call, self._claims = cloud, call, claims
        self._hosts, hosts_by_vm = deploy_plan.hosts, deploy_plan.plan.hosts
        self._requests = {request.name: request for request in call.requests}
        # The host of each VM, built or planned; failed VMs are removed.
        self._places = dict(hosts_by_vm)
        self._total, self._pace = len(hosts_by_vm), Pace(len(hosts_by_vm))
        waiting = {name: (host,) for name, host in hosts_by_vm.items()}
        self._turns, self._lock = Turns(waiting, call.per_host), threading.Lock()
        self._unasked = [] if call.terms.force else sorted(self._hosts.survey.reasons())
        self._images = offers.Images(cloud.opts)
        self.is_interrupted = False
        self.ended: dict[str, float] = {}
        # The UUID of each VM for its host, built or failed.
        self.uuids: dict[str, str] = {}

    def build_all(self, out: Outcome) -> None:
        """Build all VMs; an interruption lets the running builds come to their end."""
        count = min(self._call.max_parallel, self._total)
        if not count:
            return
        with ThreadPoolExecutor(count) as pool:
            jobs = self._run_threads(pool, count, out)
        for job in jobs:
            job.result()

    def _run_threads(self, pool: Executor, count: int, out: Outcome) -> Sequence[Future[None]]:
        jobs: list[Future[None]] = []
        while len(jobs) < count or not all(job.done() for job in jobs):
            try:
                # The first build runs while the last thread starts: interruptions count, too.
                while len(jobs) < count:
                    jobs.append(threads.begin(pool, self._work, out))
                wait(jobs)
            except (KeyboardInterrupt, SystemExit):
                self.is_interrupted = True
                self._stop(out, _INTERRUPTED)
                self._cloud.progress("Going on", detail="interrupted: no other is begun")
        return jobs

    def _stop(self, out: Outcome, reason: str) -> None:
        out.failed |= dict.fromkeys(self._turns.stop(), reason)

    def _work(self, out: Outcome) -> None:
        while (name := self._turns.next()) is not None:
            try:
                out.built[name], warnings = self._build(name)
                out.warnings |= {name: warnings} if warnings else {}
            except Exception as error:  # of any kind: the outcome of the others must be reported
                self._record_failure(name, error, out)
            finally:
                self._turns.over(name)
            self.ended[name] = time.monotonic()
            self._show_result(name, out)

    def _record_failure(self, name: str, error: Exception, out: Outcome) -> None:
        is_ours = isinstance(error, VirtError)
        if not is_ours:
            log.error("building %s failed", name, exc_info=error)
        out.failed[name] = str(error) if is_ours else f"{type(error).__name__}: {error}"
        with self._lock:
            # A VM that its host may still make counts there.
            if self._claims[name].order.record is None:
                self._places.pop(name)
        if self._call.all_or_nothing:
            self._stop(out, f"not begun, as {name} failed")

    def _show_result(self, name: str, out: Outcome) -> None:
        result_text = (
            f"on {out.built[name]}" if name in out.built else f"failed: {out.failed[name]}"
        )
        pace_text = self._pace.text(len(self.ended), "VMs")
        with self._lock:
            self._cloud.progress("Done", detail=f"{pace_text}; {name} {result_text}")

    def _build(self, name: str) -> tuple[str, list[str]]:
        """Build one VM; return its host and the build's warnings."""
        request, claim = self._requests[name], self._claims[name]
        refusals_by_host: dict[str, list[str]] = {}
        reasons_by_host: dict[str, str] = {}

        def no_host_error(late_refusals: Mapping[str, list[str]]) -> VirtError:
            late_reasons = {host: "; ".join(reasons) for host, reasons in late_refusals.items()}
            return VirtError(self._hosts.no_place_text({**reasons_by_host, **late_reasons}))

        def hosts() -> Iterator[tuple[str, str]]:
            host: str | None = self._places[name]
            while host is not None:
                yield host, f"on {host}"
                refusals_by_host[host] = ["it refused"]
                host = self._next_best(name, refusals_by_host, reasons_by_host)

        answers = self._hosts.answers
        chosen_types = {host: request.choose_machine(answers, host) for host in answers}
        build = hostbuild.Build(
            cloud=replace(self._cloud, progress=self._progress(name)),
            request=request,
            order=claim.order,
            hosts=hosts(),
            no_host_error=no_host_error,
            turn=partial(self._turns.on, name),
            report={
                "unasked": self._unasked,
                "others": self._hosts.similar_names(name),
                "images": self._images.digests(request.images, request.saltenv),
                **({"undoable": True} if self._call.all_or_nothing else {}),
            },
            machines_by_host={host: machine for host, machine in chosen_types.items() if machine},
        )
        self.uuids[name] = build.uuid
        seeded = {host for host, info in self._hosts.answers.items() if request.is_seeded(info)}
        # All or nothing: keep the name until the outcome of the whole call is known.
        with nullcontext() if self._call.all_or_nothing else claim.stack:
            return hostbuild.run_build(build, seeded), build.warnings

    def _next_best(
        self, name: str, refusals_by_host: Mapping[str, list[str]], reasons_by_host: dict[str, str]
    ) -> str | None:
        with self._lock:
            other_vms = [
                (self._requests[other_name], host)
                for other_name, host in self._places.items()
                if other_name != name
            ]
            host, new_reasons = self._hosts.next_best(
                self._requests[name], other_vms, refusals_by_host
            )
            reasons_by_host |= new_reasons
            if host is not None:
                self._places[name] = host
        return host

    def _progress(self, name: str) -> Callable[..., None]:
        def show(stage: str, **figures: Any) -> None:
            if stage in _SHOWN:
                with self._lock:
                    self._cloud.progress(f"{name}: {stage}", **figures)

        return show
