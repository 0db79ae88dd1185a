"""
Run one of the table's commands (:mod:`saltvirt.core.vmcommands`) on a VM, wherever it is.

A command on one VM returns ``{host: {name: outcome}}``. A command on several VMs locates all of
them by one survey, and returns ``{"vms": {name: {"host", "outcome", "error"}}}``.
"""

import logging
import shlex
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from saltvirt.cluster import progress
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory, lastseen, whereabouts
from saltvirt.cluster.inventory.locate import ask_presence, locate
from saltvirt.cluster.inventory.presence import VmPresence
from saltvirt.cluster.inventory.surveys import Survey
from saltvirt.cluster.inventory.whereabouts import Purpose, Whereabouts
from saltvirt.cluster.rpc import hostcommands, minions
from saltvirt.core import arguments, terminal, vmcommands, wire
from saltvirt.core.errors import BadArgument, VirtError
from saltvirt.core.salt import threads
from saltvirt.core.vmcommands import VmCommand
from saltvirt.placement.answers import HostInfo
from saltvirt.storage.master import fileusers
from saltvirt.vm.command.master import guestwait
from saltvirt.vm.command.master.guestwait import Request

log = logging.getLogger(__name__)

MAX_PARALLEL = 8
_MOST_PARALLEL = 64
_WAIT_S, _LONGEST_WAIT_S = 120, 86400
# A host may invent names: a glob must not have the master run thousands of jobs.
_MOST_VMS = 1000
_NOT_BEGUN = "not begun: the command was interrupted"


class VmCommandFailed(VirtError):
    """A command failed for at least one VM; the table has the outcome of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """
    A call of one of the table's commands, checked.

    names
        The names and globs of the VMs.
    is_of_several
        Whether they are a list or a glob.
    args, kwarg
        What the host gets beside the name.
    is_dry
        Whether nothing is to be changed.
    max_parallel
        How many VMs are acted on at a time.
    force
        Whether unresponsive hosts are passed over in questions about shared files.
    outcome
        The words for this call, in place of those of the table; empty for these.
    wait_s
        How long guests are waited for; None for no wait.
    """

    command: VmCommand
    names: tuple[str, ...]
    is_of_several: bool = False
    args: tuple[Any, ...] = ()
    kwarg: Mapping[str, Any] = field(default_factory=dict)
    is_dry: bool = False
    max_parallel: int = MAX_PARALLEL
    force: bool = False
    outcome: str = ""
    wait_s: int | None = None

    @property
    def is_reading(self) -> bool:
        """Whether the call changes nothing."""
        return self.command.only_looks or self.is_dry

    def awaits(self, outcome: Any) -> bool:
        """Return whether the command waits for a guest after this outcome of its host."""
        is_asked = outcome == self.command.outcome
        return is_asked and bool(self.command.awaits) and self.wait_s is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """What has become of one of several VMs; ``error`` is None for a success."""

    host: str | None = None
    outcome: Any = None
    error: str | None = None


def parse(
    command_name: str,
    name: object,
    args: Sequence[Any] = (),
    kwarg: Mapping[str, Any] | None = None,
    *,
    dry_run: object = False,
    max_parallel: object = MAX_PARALLEL,
    force: object = False,
    outcome: str = "",
    wait: object = False,
    wait_s: object = _WAIT_S,
) -> Call:
    """
    Return the :class:`Call` of a runner function's arguments; raise BadArgument.

    kwarg
        Keyword arguments for the host; those that the table does not name are refused.
    wait, wait_s
        Whether guests are waited for, and how many seconds at most.
    """
    command = vmcommands.COMMANDS[command_name]
    options, is_dry = dict(kwarg or {}), arguments.boolean("dry_run", dry_run)
    if command.dry_argument:
        flag = command.dry_argument
        is_dry = arguments.boolean(flag, options.pop(flag, False)) or is_dry
    known = command.keywords.split()
    arguments.refuse_unknown(set(options).difference(known), known, command.function)
    is_of_several = command.takes_several and vmcommands.is_of_several(name)
    if is_of_several:
        _refuse_for_several(command, options)
    return Call(
        command=command,
        names=_parse_names(name) if is_of_several else (_parse_name(command, name),),
        is_of_several=is_of_several,
        args=tuple(args),
        kwarg=options,
        is_dry=is_dry,
        max_parallel=arguments.whole_number("max_parallel", max_parallel, most=_MOST_PARALLEL),
        force=arguments.boolean("force", force),
        outcome=outcome,
        wait_s=_parse_wait(wait, wait_s),
    )


def _parse_wait(wait: object, wait_s: object) -> int | None:
    limit_s = arguments.whole_number("wait_s", wait_s, most=_LONGEST_WAIT_S)
    return limit_s if arguments.boolean("wait", wait) else None


def _refuse_for_several(command: VmCommand, options: Collection[str]) -> None:
    """Raise BadArgument for a keyword that is for one VM alone."""
    refused = sorted(set(options).intersection(command.for_one_vm.split()))
    if refused:
        raise BadArgument(refused[0], "is for one VM: name that VM")


def _parse_name(command: VmCommand, value: object) -> str:
    name = arguments.text("name", value)
    if command.takes_several and "," in name:
        raise BadArgument(
            "name", f"{name!r} has a comma: give several VMs as a list, '[web1, web2]'"
        )
    return name


def _parse_names(value: object) -> tuple[str, ...]:
    items = value if isinstance(value, list | tuple) else [value]
    names = tuple(dict.fromkeys(arguments.text("name", item) for item in items))
    if not names:
        raise BadArgument("name", "the list names no VM")
    return names


def run(
    opts: Mapping[str, Any],
    events: Any,
    command_name: str,
    name: object,
    *host_args: Any,
    **given: Any,
) -> dict[str, Any]:
    """
    Run a command; return ``{host: {name: outcome}}``, or the table of several VMs.

    opts, events
        Salt's ``__opts__`` and ``__jid_event__``.
    host_args
        Positional arguments for the host, after the name.
    given
        As those of :func:`parse`.

    Raises VmCommandFailed with the table if the command failed for one of several VMs, or if the
    answer of the one is part of its failure.
    """
    call = parse(command_name, name, host_args, **given)
    title = "virt" if call.is_of_several else terminal.one_line(call.names[0])
    cloud = Cloud.of(opts, events, title, is_reading=call.is_reading)
    if call.is_of_several:
        return _Several(cloud, call).run()
    (vm_name,) = call.names
    vm = locate(cloud, vm_name, Purpose[call.command.purpose])
    try:
        outcome = act(cloud, call, vm)
    except _FailedAnswer as failed:
        raise _one_failure(vm, failed.answer, str(failed)) from None
    if not call.awaits(outcome):
        return {vm.host: {vm_name: outcome}}
    requests = {vm_name: Request(host=vm.host, time_s=time.monotonic())}
    ending = guestwait.wait_for_guests(cloud, requests, call.command.awaits, call.wait_s or 0)[
        vm_name
    ]
    if ending.error is not None:
        raise _one_failure(vm, outcome, ending.error)
    return {vm.host: {vm_name: ending.outcome}}


def _one_failure(vm: Whereabouts, outcome: Any, message: str) -> VmCommandFailed:
    """Return the error of a command on one VM that has an outcome, too."""
    error = VmCommandFailed(message)
    row = _Row(host=vm.host, outcome=outcome, error=message)
    error.table = {"vms": {vm.name: wire.plain(row)}}
    return error


class _FailedAnswer(VirtError):
    """A host's answer is the outcome of a failure."""

    def __init__(self, message: object, answer: Any) -> None:
        super().__init__(message)
        self.answer = answer


def act(cloud: Cloud, call: Call, vm: Whereabouts) -> Any:
    """Have the host of a VM act, unless there is nothing to do; return the outcome."""
    command, kwarg = call.command, dict(call.kwarg)
    state = _find_state(cloud, call, vm)
    if state in command.refused:
        raise VirtError(f"VM {vm.name!r} {_advice(command.refused[state], vm.name)}")
    if state in command.already:
        return command.already[state]
    if call.is_dry and not command.dry_argument:
        return f"would be {call.outcome}" if call.outcome else command.dry_outcome
    if call.is_dry:
        kwarg[command.dry_argument] = True
    watch = None
    if command.progress_tag:
        kwarg["report"] = True
        watch = hostcommands.progress_watcher(cloud, command.progress_tag, vm.host, vm.name)
    if command.asks_all_hosts:
        reply = fileusers.order(
            cloud,
            vm.host,
            command.function,
            [vm.name, *call.args],
            kwarg,
            force=call.force,
            watch=watch,
            limit_s=command.limit_s or None,
        )
    else:
        reply = _order(cloud, call, vm, kwarg)
    if command.answer is None:
        remark = _advice(command.remarks.get(state, ""), vm.name)
        return f"{call.outcome or command.outcome}{remark}"
    return _read_answer(command, vm, reply)


def _find_state(cloud: Cloud, call: Call, vm: Whereabouts) -> str:
    """Return the state of a VM if the command has words for it, else an empty text."""
    command = call.command
    with_words = {*command.already, *command.refused, *command.remarks}
    state = _complete_state(vm.presence_by_host.get(vm.host))
    if state in with_words and call.is_of_several:
        # The survey may be minutes old by the turn of this VM.
        state = _complete_state(ask_presence(cloud, vm.host, vm.name))
    return state if state in with_words else ""


def _complete_state(seen: VmPresence | None) -> str:
    """Return the state of a VM that its host has whole; of others an empty text."""
    return (seen.state or "") if seen is not None and seen.is_complete else ""


def _advice(text: str, name: str) -> str:
    """Return a text of the table, with a VM's name in its commands."""
    return text.replace("{vm}", shlex.quote(name))


def _order(cloud: Cloud, call: Call, vm: Whereabouts, kwarg: Mapping[str, Any]) -> Any:
    """Have the host of a VM act; raise _FailedAnswer if its answer is part of a failure."""
    command, args = call.command, [vm.name, *call.args]
    if not command.keeps_failure:
        return hostcommands.act(cloud, vm.host, command.function, *args, kwarg=kwarg)
    reply = minions.order(cloud, vm.host, command.function, args, kwarg)
    has_answer = isinstance(reply.value, dict) and "error" not in reply.value
    if reply.ok or reply.is_missing or not has_answer:
        return hostcommands.require_value(reply)
    answer = _read_answer(command, vm, reply.value)
    code = answer.get("exit_code")
    ending = "a signal ended it" if code is None else f"its exit code is {code}"
    raise _FailedAnswer(f"the command failed in the guest of VM {vm.name!r}: {ending}", answer)


def _read_answer(command: VmCommand, vm: Whereabouts, reply: Any) -> Any:
    """Return a host's answer of the command's type, with its texts escaped."""
    shape = dict[str, command.answer] if command.is_by_name else command.answer  # type: ignore[name-defined]
    wire.read(vm.host, command.function, shape, reply)
    # The host was asked about this VM only.
    answer = reply.get(vm.name) if command.is_by_name else reply
    if command.empty and answer == command.empty:
        return []
    try:
        return terminal.clean(answer, -1 if command.keeps_lines else 0)
    except ValueError as error:
        raise wire.BadAnswer(f"{vm.host}'s answer to {command.function}: {error}") from None


class _Several:
    """One command on several VMs."""

    def __init__(self, cloud: Cloud, call: Call) -> None:
        self._cloud, self._call = cloud, call
        self._rows: dict[str, _Row] = {}
        self._requests: dict[str, Request] = {}
        self._lock, self._is_interrupted = threading.Lock(), False

    def run(self) -> dict[str, Any]:
        """Run the command on all VMs; raise VmCommandFailed if it failed for one."""
        survey = inventory.survey(self._cloud, inventory.all_hosts(self._cloud), "virt.host_info")
        names = find_names(self._call.names, survey, lastseen.read_all(self._cloud.opts))
        vms = self._locate_all(names, survey)
        pace = progress.Pace(len(vms))
        waiting = deque(vms)
        if vms:
            with ThreadPoolExecutor(min(self._call.max_parallel, len(vms))) as pool:
                jobs = self._wait(pool, waiting, lambda: self._work(waiting, vms, pace))
            for job in jobs:
                job.result()
        self._wait_for_guests()
        for name in names:
            self._rows.setdefault(name, _Row(error=_NOT_BEGUN))
        return self._report(names, sorted(survey.unreachable))

    def _locate_all(self, names: Sequence[str], survey: Survey) -> dict[str, Whereabouts]:
        """Return where the VMs are; a VM that cannot be located has its row."""
        out = {}
        purpose = Purpose[self._call.command.purpose]
        for name in names:
            try:
                out[name] = locate(self._cloud, name, purpose, survey=survey)
            except VirtError as error:
                self._rows[name] = _Row(error=str(error))
        return out

    def _wait(
        self, pool: Executor, waiting: deque[str], work: Callable[[], None]
    ) -> Sequence[Future[None]]:
        """Return all jobs once they are over; an interruption begins no other VM."""
        jobs: list[Future[None]] = []
        count = min(self._call.max_parallel, len(waiting))
        while len(jobs) < count or not all(job.done() for job in jobs):
            try:
                while len(jobs) < count:
                    jobs.append(threads.begin(pool, work))
                wait(jobs)
            except (KeyboardInterrupt, SystemExit):
                self._is_interrupted = True
                waiting.clear()
                self._cloud.progress("Going on", detail="interrupted: no other VM is begun")
        return jobs

    def _work(
        self, waiting: deque[str], vms: Mapping[str, Whereabouts], pace: progress.Pace
    ) -> None:
        while True:
            try:
                name = waiting.popleft()
            except IndexError:
                return
            self._rows[name] = self._act(vms[name])
            with self._lock:
                ended_count = sum(name in self._rows for name in vms)
                self._cloud.progress("Done", detail=pace.text(ended_count, "VMs"))

    def _act(self, vm: Whereabouts) -> _Row:
        cloud = replace(self._cloud, progress=self._progress(vm.name))
        try:
            outcome = act(cloud, self._call, vm)
            if self._call.awaits(outcome):
                self._requests[vm.name] = Request(host=vm.host, time_s=time.monotonic())
            return _Row(host=vm.host, outcome=outcome)
        except _FailedAnswer as failed:
            return _Row(host=vm.host, outcome=failed.answer, error=str(failed))
        except VirtError as error:
            return _Row(host=vm.host, error=str(error))
        except Exception as error:  # of any kind: the outcome of the others must be reported
            log.error("%s of %s failed", self._call.command.function, vm.name, exc_info=error)
            return _Row(host=vm.host, error=f"{type(error).__name__}: {error}")

    def _wait_for_guests(self) -> None:
        """Wait for the guests that were asked; their rows say whether they have obeyed."""
        if not self._requests:
            return
        if self._is_interrupted:
            endings = guestwait.give_up(self._requests)
        else:
            limit_s, state = self._call.wait_s or 0, self._call.command.awaits
            endings = guestwait.wait_for_guests(self._cloud, self._requests, state, limit_s)
        for name, ending in endings.items():
            row = self._rows[name]
            outcome = row.outcome if ending.outcome is None else ending.outcome
            self._rows[name] = replace(row, outcome=outcome, error=ending.error)

    def _progress(self, name: str) -> Callable[..., None]:
        def report(stage: str, **figures: Any) -> None:
            with self._lock:
                self._cloud.progress(f"{terminal.one_line(name)}: {stage}", **figures)

        return report

    def _report(self, names: Sequence[str], unreachable: Collection[str]) -> dict[str, Any]:
        table: dict[str, Any] = {"vms": {name: wire.plain(self._rows[name]) for name in names}}
        # They may have VMs that match a glob, and that no survey has seen.
        if unreachable and any(map(vmcommands.is_glob, self._call.names)):
            table["unreachable"] = list(unreachable)
        failed_names = [name for name in names if self._rows[name].error is not None]
        if not failed_names:
            return table
        begin_text = "interrupted; " if self._is_interrupted else ""
        error = VmCommandFailed(
            f"{begin_text}{self._call.command.function} failed for {len(failed_names)} of "
            f"{terminal.count_text(len(names), 'VM')}: {terminal.join_some(failed_names)}"
        )
        error.table = table
        raise error


def find_names(
    patterns: Collection[str], survey: Survey, last_seen: Mapping[str, Collection[str]]
) -> list[str]:
    """
    Return the names of the VMs that names and globs mean, without duplicates.

    A glob matches what hosts have, and what hosts without a usable answer had when last seen. A
    text that is the name of a VM is no glob. Raises BadArgument for a glob that matches nothing,
    and for more VMs than one command takes.
    """
    reasons = survey.reasons()
    infos: list[HostInfo] = list(survey.answers.values())
    known_names = {name for info in infos for name in (*info.vms, *info.kept)}
    known_names.update(*(last_seen.get(host, ()) for host in reasons))
    out: dict[str, None] = {}
    for pattern in patterns:
        if pattern in known_names or not vmcommands.is_glob(pattern):
            out[pattern] = None
            continue
        matches = sorted(name for name in known_names if fnmatchcase(name, pattern))
        if not matches:
            silent = f"; not asked: {whereabouts.with_reasons(reasons)}" if reasons else ""
            raise BadArgument("name", f"{pattern!r} matches no VM{silent}")
        out |= dict.fromkeys(matches)
    if len(out) > _MOST_VMS:
        raise BadArgument(
            "name", f"{len(out):,} VMs match, and one command takes {_MOST_VMS:,}: narrow the glob"
        )
    return list(out)
