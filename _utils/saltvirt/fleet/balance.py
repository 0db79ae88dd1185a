"""Even out the load of all hosts: watch them, plan few moves, make them, say what was done."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from saltvirt.errors import VirtError
from saltvirt.fleet import agreement, inventory, several
from saltvirt.fleet.cloud import Cloud
from saltvirt.placement import balance as planning
from saltvirt.placement import load, requirements
from saltvirt.placement import sequence as ordering
from saltvirt.placement.answers import HostInfo, Load, MigrationInfo

# A window is watched in so many parts, of at most so many seconds: what differs between them is
# chance. No minion is at it for longer than a part, so none is taken for silent.
_PARTS, _LONGEST_S = 12, 60
# After so many failures more than moves were asked for, something else is wrong.
_FAILURES = 10
_CUT = (KeyboardInterrupt, SystemExit)
_INTERRUPTED = "the command was interrupted"
_Made = Sequence[planning.Step]
_Steps = Callable[[_Made, Collection[str]], list[planning.Step]]


class NotEven(VirtError):
    """Not all moves of a rebalance were made; ``table`` says which, and why."""


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
    Even out the load of all hosts with few moves, some at a time; return what was done.

    A move that fails does not keep the others from being made: what is best without it is planned
    anew. Raises NotEven, which says the same, if one failed or the command was interrupted.
    """
    pace = several.Pace(max_parallel=max_parallel, per_host=per_host)
    watched, beside = _seen(cloud, window_s)
    out = {"imbalance": planning.imbalance(watched.loads), "moves": [], "stays": {}, **beside}
    out["uneven"] = out["imbalance"]  # its old name, for one release

    def steps(made: _Made, failed: Collection[str]) -> list[planning.Step]:
        return _planned(cloud, watched, made, failed, max_moves, threshold)

    if is_dry:
        return {**out, "moves": [step.to_dict() for step in steps((), ())]}
    making = _Making(cloud, watched, pace)
    why = making.until_even(steps, max_moves)
    out.update(moves=[step.to_dict() for step in making.made], stays=making.stays)
    if making.stays or why:
        moved = ", ".join(f"{step.name} to {step.target}" for step in making.made) or "nothing"
        error = NotEven(f"{why or 'not all moves were made'}; moved: {moved}")
        error.table = out
        raise error
    return out


class _Watched:
    """What the hosts have said that answered all questions."""

    def __init__(
        self,
        loads: Mapping[str, Load],
        infos: Mapping[str, HostInfo],
        facts: Mapping[str, Mapping[str, MigrationInfo]],
    ) -> None:
        there = [host for host in loads if host in infos and host in facts]
        self.hosts = {host: infos[host] for host in there}
        self.loads = {host: loads[host] for host in there}
        # What a host says of a VM that it does not have is no word on that VM.
        self.vms = {
            name: one
            for host in there
            for name, one in facts[host].items()
            if name in infos[host].vms
        }

    def order(self, steps: Sequence[planning.Step], made: int) -> ordering.Sequence:
        """Return in which order steps can be made, the first so many of which are."""
        needs = {step.name: requirements.of(self.vms[step.name]) for step in steps}
        moves = {step.name: (step.source, step.target) for step in steps}
        order = ordering.Sequence(self.hosts, needs, moves)
        for step in steps[:made]:
            order.begin(step.name)
            order.end(step.name, has_moved=True)
        return order


def _seen(cloud: Cloud, window_s: int) -> tuple[_Watched, dict[str, Any]]:
    """
    Return what the hosts have said, and what stands beside a result of those that have not.

    Raises MasterError if none has said all of it: a cloud of which nothing is known is not even.
    """
    every = inventory.every(cloud)
    loads, surveys = _watched(cloud, every, window_s)
    infos = inventory.survey(cloud, every, "virt.host_info")
    facts = inventory.survey(cloud, every, "virt.migration_info")
    watched = _Watched(loads, infos.answers, facts.answers)
    beside = inventory.beside(*surveys, infos, facts)
    if not watched.hosts:
        raise inventory.Survey(answers={}, **beside).silence()
    return watched, beside


def _parts(window_s: int) -> list[tuple[int, int]]:
    """Return ``[(begin, length)]`` in seconds of the parts of a window, which show progress."""
    count = max(min(_PARTS, window_s), -(-window_s // _LONGEST_S))
    edges = [window_s * number // count for number in range(count + 1)]
    return [(begin, end - begin) for begin, end in pairwise(edges)]


def _watched(
    cloud: Cloud,
    hosts: Sequence[str],
    window_s: int,
) -> tuple[dict[str, Load], list[inventory.Survey]]:
    """
    Return ``{host: load}`` over some seconds, and the surveys that it was read by.

    A host that does not answer once is asked no more.
    """
    readings: dict[str, list[Load]] = {host: [] for host in hosts}
    surveys = []
    for begun_s, part_s in _parts(window_s):
        patient_s = cloud.settings.timeout_s + part_s
        cloud.progress("Watching", detail=f"{len(hosts)} hypervisors, {begun_s} of {window_s} s")
        found = inventory.survey(cloud, hosts, "virt.load", [part_s], timeout_s=patient_s)
        surveys.append(found)
        hosts = [host for host in hosts if host in found.answers]
        for host in hosts:
            readings[host].append(found.answers[host])
    return {host: load.over(readings[host]) for host in hosts}, surveys


def _planned(
    cloud: Cloud,
    watched: _Watched,
    made: _Made,
    failed: Collection[str],
    max_moves: int,
    threshold: float,
) -> list[planning.Step]:
    """Return the steps that are left to make, without VMs whose move has failed."""
    vms = {name: moving for name, moving in watched.vms.items() if name not in failed}

    def place(refused: planning.Refused) -> tuple[list[planning.Step], dict[str, str]]:
        steps = planning.rebalance(
            watched.hosts,
            watched.loads,
            vms,
            max_moves=max_moves - len(made),
            threshold=threshold,
            refused=refused,
            made=made,
        )
        return steps, {step.name: step.target for step in steps}

    return agreement.reach(cloud, list(watched.hosts), vms, place)


class _Making:
    """The moves of one rebalance: which are made, and what stays, and why."""

    def __init__(self, cloud: Cloud, watched: _Watched, pace: several.Pace) -> None:
        self._cloud, self._watched, self._pace = cloud, watched, pace
        self.made: list[planning.Step] = []
        self.stays: dict[str, str] = {}

    def until_even(self, steps: _Steps, max_moves: int) -> str | None:
        """Make the steps, planned anew after each failure; return why it ended early."""
        left = steps((), ())
        while left:
            try:
                why = self._round(left, max_moves)
                left = [] if why else steps(self.made, self.stays)
            except (VirtError, *_CUT) as error:
                # What was moved is to be told, whatever keeps the rest from being planned.
                return str(error) if isinstance(error, VirtError) else _INTERRUPTED
            if why:
                return why
        return None

    def _round(self, left: Sequence[planning.Step], max_moves: int) -> str | None:
        """Make the steps until one fails; return why no others are to be."""
        order = self._watched.order([*self.made, *left], len(self.made))
        moves = {step.name: (step.source, step.target) for step in left}
        done = several.move(self._cloud, moves, pace=self._pace, is_fixed=True, order=order)
        self.made += [step for step in left if step.name in done.moved]
        self.stays |= {**done.failed, **dict.fromkeys(done.gone, "it was removed")}
        why = _INTERRUPTED if done.is_interrupted else None
        if len(self.stays) > max_moves + _FAILURES:
            why = "given up, as too many moves have failed"
        elif len(done.left) == len(left):
            why = "no move could begin"
        if why:
            self.stays = {**dict.fromkeys(done.left, f"not begun: {why}"), **self.stays}
        return why
