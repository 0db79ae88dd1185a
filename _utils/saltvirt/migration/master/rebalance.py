"""Even out the load of all hosts: measure it, plan few moves, and make them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.core import wire
from saltvirt.core.errors import VirtError
from saltvirt.migration.master import parallelmoves
from saltvirt.placement import balance as planning
from saltvirt.placement import load, sequence, whatif
from saltvirt.placement.answers import HostInfo, Load, MigrationInfo

_ROUNDS = 5
_Refusals = Mapping[str, Mapping[str, list[str]]]
_Plan = TypeVar("_Plan")


def find_agreed_plan(
    cloud: Cloud,
    hosts: Collection[str],
    vms: Mapping[str, MigrationInfo],
    place: Callable[[_Refusals], tuple[_Plan, Mapping[str, str]]],
) -> _Plan:
    """
    Return a plan that its target hosts agree to.

    hosts
        All hosts that may take a VM.
    vms
        ``{name: answer of virt.migration_info}``.
    place
        Called with ``{name: {host: reasons}}`` of the refusals so far; returns ``(plan, moves)``,
        ``moves`` as ``{name: host}``.

    A survey lacks what only a host's libvirt knows, such as its CPU model. The first round asks
    the hosts of the plan. After a refusal each round asks all hosts about all unsettled VMs:
    otherwise each round would find one more host that refuses. A host that cannot be asked, or is
    not asked within the rounds, refuses when the move begins.
    """
    refusals: dict[str, dict[str, list[str]]] = {}
    checked_pairs: set[tuple[str, str]] = set()
    for _round in range(_ROUNDS):
        plan, moves = place(refusals)
        new_pairs = {
            (name, target) for name, target in moves.items() if (name, target) not in checked_pairs
        }
        if not new_pairs:
            return plan
        targets, names = _select_checks(new_pairs, refusals, moves, hosts)
        facts_by_vm = {
            name: wire.plain(vms[name])
            for name in names
            if any((name, host) not in checked_pairs for host in targets)
        }
        checked_pairs |= {(name, host) for name in facts_by_vm for host in targets}
        survey = inventory.survey(
            cloud, targets, "virt.migrate_check", kwarg={"about": facts_by_vm}
        )
        for host, answer in survey.answers.items():
            for name in facts_by_vm.keys() & set(answer):
                refusals.setdefault(name, {})[host] = answer[name]
    return place(refusals)[0]


def _select_checks(
    new_pairs: Collection[tuple[str, str]],
    refused_names: Collection[str],
    moves: Collection[str],
    hosts: Collection[str],
) -> tuple[Collection[str], Collection[str]]:
    """Return ``(hosts, VMs)`` of the next check; after a refusal, with all hosts."""
    if not refused_names:
        return sorted({target for _name, target in new_pairs}), moves
    return hosts, sorted({name for name, _target in new_pairs} | set(refused_names))


# Hosts measure a window in parts: the differences between parts are noise. A part has at most
# _LONGEST_S seconds, so that the master does not take a measuring host for unresponsive.
_PARTS, _LONGEST_S = 12, 60
# Failures beyond ``max_moves`` after which a rebalance ends: the moves are not their cause.
_FAILURES = 10
_INTERRUPTIONS = (KeyboardInterrupt, SystemExit)
_INTERRUPTED = "the command was interrupted"
_FinishedSteps = Sequence[planning.Step]
_PlanSteps = Callable[[_FinishedSteps, Collection[str]], list[planning.Step]]


class NotEven(VirtError):
    """Not all moves of a rebalance were made; ``table`` has the moves and the reasons."""


def balance(
    cloud: Cloud,
    *,
    max_moves: int,
    threshold: float,
    window_s: int,
    is_dry: bool,
    max_parallel: int,
    per_host: int,
) -> dict[str, Any]:
    """
    Even out the load of all hosts with few moves, some at a time; return the result.

    After a failed move the rest is planned anew without that VM. Raises NotEven, with the result
    as its table, if a move failed or the command was interrupted.
    """
    pace = parallelmoves.Pace(max_parallel=max_parallel, per_host=per_host)
    state, failure_entries = _survey_cloud(cloud, window_s)
    out = {
        "imbalance": planning.imbalance(state.loads),
        "moves": [],
        "stays": {},
        **failure_entries,
    }

    def steps(finished_steps: _FinishedSteps, failed_names: Collection[str]) -> list[planning.Step]:
        return _plan_steps(cloud, state, finished_steps, failed_names, max_moves, threshold)

    if is_dry:
        return {**out, "moves": [step.to_dict() for step in steps((), ())]}
    run = _RebalanceRun(cloud, state, pace)
    reason = run.until_even(steps, max_moves)
    out.update(moves=[step.to_dict() for step in run.made], stays=run.stays)
    if run.stays or reason:
        moved = ", ".join(f"{step.name} to {step.target}" for step in run.made) or "nothing"
        error = NotEven(f"{reason or 'not all moves were made'}; moved: {moved}")
        error.table = out
        raise error
    return out


class _CloudState:
    """The answers of the hosts that answered all questions."""

    def __init__(
        self,
        loads: Mapping[str, Load],
        infos: Mapping[str, HostInfo],
        facts: Mapping[str, Mapping[str, MigrationInfo]],
    ) -> None:
        complete_hosts = [host for host in loads if host in infos and host in facts]
        self.hosts = {host: infos[host] for host in complete_hosts}
        self.loads = {host: loads[host] for host in complete_hosts}
        # A host's facts about a VM that is not on its own list do not count.
        self.vms = {
            name: info
            for host in complete_hosts
            for name, info in facts[host].items()
            if name in infos[host].vms
        }

    def order(self, steps: Sequence[planning.Step], finished_count: int) -> sequence.Sequence:
        """Return the order of the steps, of which the first ``finished_count`` are made."""
        needs = {step.name: whatif.needs_of_move(self.vms[step.name]) for step in steps}
        moves = {step.name: (step.source, step.target) for step in steps}
        order = sequence.Sequence(self.hosts, needs, moves)
        for step in steps[:finished_count]:
            order.begin(step.name)
            order.end(step.name, has_moved=True)
        return order


def _survey_cloud(cloud: Cloud, window_s: int) -> tuple[_CloudState, dict[str, Any]]:
    """
    Return the hosts' answers, and the entries of a result about hosts without an answer.

    Raises MasterError if no host answered all questions: an unknown load is not an even one.
    """
    hosts = inventory.all_hosts(cloud)
    loads, surveys = _measure_loads(cloud, hosts, window_s)
    infos = inventory.survey(cloud, hosts, "virt.host_info")
    facts = inventory.survey(cloud, hosts, "virt.migration_info")
    state = _CloudState(loads, infos.answers, facts.answers)
    failure_entries = inventory.merge_errors(*surveys, infos, facts)
    if not state.hosts:
        raise inventory.Survey(answers={}, **failure_entries).no_answers_error()
    return state, failure_entries


def _split_window(window_s: int) -> list[tuple[int, int]]:
    """Return ``[(begin, length)]`` in seconds of the parts of a window."""
    count = max(min(_PARTS, window_s), -(-window_s // _LONGEST_S))
    edges = [window_s * number // count for number in range(count + 1)]
    return [(begin, end - begin) for begin, end in pairwise(edges)]


def _measure_loads(
    cloud: Cloud,
    hosts: Sequence[str],
    window_s: int,
) -> tuple[dict[str, Load], list[inventory.Survey]]:
    """
    Return ``{host: load}`` over a window, and the surveys of its parts.

    A host that misses one survey is not asked again.
    """
    readings: dict[str, list[Load]] = {host: [] for host in hosts}
    surveys = []
    for elapsed_s, part_s in _split_window(window_s):
        timeout_s = cloud.settings.timeout_s + part_s
        cloud.progress("Watching", detail=f"{len(hosts)} hypervisors, {elapsed_s} of {window_s} s")
        survey = inventory.survey(cloud, hosts, "virt.load", [part_s], timeout_s=timeout_s)
        surveys.append(survey)
        hosts = [host for host in hosts if host in survey.answers]
        for host in hosts:
            readings[host].append(survey.answers[host])
    return {host: load.average(readings[host]) for host in hosts}, surveys


def _plan_steps(
    cloud: Cloud,
    state: _CloudState,
    finished_steps: _FinishedSteps,
    failed_names: Collection[str],
    max_moves: int,
    threshold: float,
) -> list[planning.Step]:
    """Return the remaining steps, without VMs that failed to move."""
    vms = {name: info for name, info in state.vms.items() if name not in failed_names}

    def place(refusals: planning.Refused) -> tuple[list[planning.Step], dict[str, str]]:
        steps = planning.rebalance(
            state.hosts,
            state.loads,
            vms,
            max_moves=max_moves - len(finished_steps),
            threshold=threshold,
            refused=refusals,
            done_steps=finished_steps,
        )
        return steps, {step.name: step.target for step in steps}

    return find_agreed_plan(cloud, list(state.hosts), vms, place)


class _RebalanceRun:
    """The moves of one rebalance: the steps made, and the VMs that stay, with reasons."""

    def __init__(self, cloud: Cloud, state: _CloudState, pace: parallelmoves.Pace) -> None:
        self._cloud, self._watched, self._pace = cloud, state, pace
        self.made: list[planning.Step] = []
        self.stays: dict[str, str] = {}

    def until_even(self, steps: _PlanSteps, max_moves: int) -> str | None:
        """Make the steps, and plan anew after each failure; return the reason for an early end."""
        remaining_steps = steps((), ())
        while remaining_steps:
            try:
                reason = self._round(remaining_steps, max_moves)
                remaining_steps = [] if reason else steps(self.made, self.stays)
            except (VirtError, *_INTERRUPTIONS) as error:
                # The moves made so far are reported even if the rest cannot be planned.
                return str(error) if isinstance(error, VirtError) else _INTERRUPTED
            if reason:
                return reason
        return None

    def _round(self, remaining_steps: Sequence[planning.Step], max_moves: int) -> str | None:
        """Make the steps until one fails; return the reason if no more should follow."""
        order = self._watched.order([*self.made, *remaining_steps], len(self.made))
        moves = {step.name: (step.source, step.target) for step in remaining_steps}
        outcome = parallelmoves.move(
            self._cloud, moves, pace=self._pace, is_fixed=True, order=order
        )
        self.made += [step for step in remaining_steps if step.name in outcome.moved]
        self.stays |= {**outcome.failed, **dict.fromkeys(outcome.gone, "it was removed")}
        reason = _INTERRUPTED if outcome.is_interrupted else None
        if len(self.stays) > max_moves + _FAILURES:
            reason = "given up, as too many moves have failed"
        elif len(outcome.left) == len(remaining_steps):
            reason = "no move could begin"
        if reason:
            self.stays = {**dict.fromkeys(outcome.left, f"not begun: {reason}"), **self.stays}
        return reason
