"""Empty a host for maintenance, and bring its VMs back."""

import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor, wait

from saltvirt.errors import BadArgument, NoHostFits, VirtError
from saltvirt.fleet import find, migrate
from saltvirt.fleet.deploy import DeployError, act
from saltvirt.fleet.migrate import MoveFailed
from saltvirt.placement import balance as rebalancing
from saltvirt.placement import plan

_ROUNDS = 5


class NotEmpty(VirtError):
    """Some VMs of a host did not move; ``table`` says which, and why."""


class NotEven(VirtError):
    """Not all moves of a rebalance were made; ``table`` says which, and why."""


def set_maintenance(opts, settings, host, state):
    """Set or clear a host's flag; return ``{host: state}``."""
    find.hosts(opts, settings, host=host)
    return {host: act(opts, settings, host, "virt.maintenance", state)}


def planned(opts, settings, host, *, with_stopped, say):
    """Return ``(moves, stays)`` of all VMs of a host, as the hosts are now."""
    every = find.every(opts, settings)
    find.narrow(opts, every, host=host)
    say("Searching", detail=f"{len(every) - 1} hypervisors")
    abouts = act(opts, settings, host, "virt.migration_info")
    left_off = {name: "it is stopped" for name, about in abouts.items()
                if about["state"] == "shutdown" and not with_stopped}  # fmt: skip
    others = [one for one in every if one != host]
    found = find.survey(opts, settings, others, "virt.host_info")
    wanted = {name: about for name, about in abouts.items() if name not in left_off}

    def place(refused):
        moves, stays = plan.evacuate(found.answers, wanted, settings.weights, refused,
                                    found.reasons())  # fmt: skip
        return (moves, {**left_off, **stays}), moves

    return _agreed(opts, settings, list(found.answers), wanted, place)


def _agreed(opts, settings, hosts, abouts, place):
    """
    Return a plan of which its hosts have said themselves that they can take their VMs.

    hosts
        All that may take a VM.
    abouts
        ``{name: answer of virt.migration_info}``.
    place
        Called with ``{name: {host: reasons}}`` of the refusals so far; returns ``(plan, moves)``,
        ``moves`` as ``{name: host}``.

    What only a host's own libvirt can judge, such as a CPU model, is in no survey. First the hosts
    of the plan are asked; once one has refused, all are, about all VMs that are not settled: else
    each round would find one more host that refuses. One that cannot be asked says it when the
    move begins, as all do after some rounds.
    """
    refused, asked = {}, set()
    for _round in range(_ROUNDS):
        made, moves = place(refused)
        new = {(name, to) for name, to in moves.items() if (name, to) not in asked}
        if not new:
            return made
        targets = hosts if refused else sorted({to for _name, to in new})
        names = sorted({name for name, _to in new} | refused.keys()) if refused else moves
        coming = {name: abouts[name] for name in names
                  if any((name, host) not in asked for host in targets)}  # fmt: skip
        asked |= {(name, host) for name in coming for host in targets}
        found = find.survey(opts, settings, targets, "virt.migrate_check", kwarg={"about": coming})
        for host, answer in found.answers.items():
            for name in coming.keys() & set(answer):
                refused.setdefault(name, {})[host] = answer[name]
    return place(refused)[0]


def dry_run(opts, settings, host, with_stopped, say):
    """Return what an evacuation would do; nothing is changed."""
    moves, stays = planned(opts, settings, host, with_stopped=with_stopped, say=say)
    return {"host": host, "moves": moves, "stays": stays}


def evacuate(opts, settings, host, *, max_parallel, with_stopped, say):
    """
    Keep new VMs away from a host and move its own to others, several at once.

    What was interrupted goes on when it is run again. Raises NotEmpty if a VM was not moved.
    """
    set_maintenance(opts, settings, host, "on")
    moves, stays = planned(opts, settings, host, with_stopped=with_stopped, say=say)

    def note(name, to):
        act(opts, settings, host, "virt.evacuated", {name: to})

    moved, failed, beside = _all(opts, settings, moves, max_parallel, say, source=host, note=note)
    out = {"host": host, "moved": moved, "stays": stays, "failed": failed, **beside}
    stuck = {name: why for name, why in stays.items() if why != "it is stopped"}
    if failed or stuck:
        error = NotEmpty(f"{host} still has {', '.join(sorted({**failed, **stuck}))}; what moved "
                         "stays where it is, and the next run goes on")  # fmt: skip
        error.table = out
        raise error
    return out


def restore(opts, settings, host, *, max_parallel, say):
    """
    Let a host take VMs again, and bring back those that are where an evacuation moved them.

    Those that somebody has moved on since are left there, and named once.
    """
    set_maintenance(opts, settings, host, "off")
    away = act(opts, settings, host, "virt.evacuated")

    def note(name, _to):
        act(opts, settings, host, "virt.evacuated", {name: None})

    is_here, gone, elsewhere = _settled(opts, settings, host, away) if away else ([], [], {})
    for name in (*is_here, *gone, *elsewhere):
        note(name, None)
    back = dict.fromkeys(sorted(away.keys() - {*is_here, *gone, *elsewhere}), host)
    moved, failed, beside = _all(opts, settings, back, max_parallel, say, source=None, note=note)
    out = {"host": host, "moved": moved, "failed": failed, "gone": gone, "elsewhere": elsewhere,
           **beside}  # fmt: skip
    if failed:
        error = NotEmpty(f"{', '.join(sorted(failed))} did not come back to {host}")
        error.table = out
        raise error
    return out


def _settled(opts, settings, host, away):
    """
    Return which VMs need not be brought back: ``(those here, those removed, {name: host})``.

    away
        ``{name: host}`` as noted; the last of the answer are those that are on another one now.
        None is taken for removed as long as a host does not answer.
    """
    found = find.survey(opts, settings, find.every(opts, settings), "virt.host_info")
    there = {name: sorted(one for one, info in found.answers.items() if name in info["vms"])
             for name in sorted(away)}  # fmt: skip
    here = [name for name, hosts in there.items() if hosts == [host]]
    gone = [name for name, hosts in there.items() if not hosts and not found.reasons()]
    elsewhere = {name: hosts[0] for name, hosts in there.items()
                 if hosts and not {host, away[name]} & set(hosts)}  # fmt: skip
    return here, gone, elsewhere


def balance(opts, settings, *, max_moves, threshold, is_dry, say):
    """Even out the load of all hosts with few moves, one after the other."""
    every = find.every(opts, settings)
    say("Watching", detail=f"{len(every)} hypervisors")
    loads = find.survey(opts, settings, every, "virt.load")
    infos = find.survey(opts, settings, every, "virt.host_info")
    facts = find.survey(opts, settings, every, "virt.migration_info")
    there = [host for host in every if host in loads.answers and host in infos.answers
             and host in facts.answers]  # fmt: skip
    abouts = {name: one for host in there for name, one in facts.answers[host].items()}
    used = {host: loads.answers[host] for host in there}
    answers = {host: infos.answers[host] for host in there}

    def place(refused):
        steps = rebalancing.rebalance(answers, used, abouts, max_moves=max_moves,
                                      threshold=threshold, refused=refused)  # fmt: skip
        return steps, {step.name: step.target for step in steps}

    steps = _agreed(opts, settings, there, abouts, place)
    out = {"uneven": rebalancing.spread(used), "moves": [step.to_dict() for step in steps],
           **find.beside(loads, infos, facts)}  # fmt: skip
    for number, step in enumerate([] if is_dry else steps):
        say(f"{step.name}: Moving", detail=f"from {step.source} to {step.target}")
        try:
            migrate.migrate(opts, settings, step.name, step.target, {}, say, step.source)
        except VirtError as error:
            raise _not_even(out, steps[:number], steps[number:], error) from error
    return out


def _not_even(out, done, left, error):
    """Return the error that says which moves were made, and which not: the first of them failed."""
    moved = ", ".join(f"{step.name} to {step.target}" for step in done) or "nothing"
    why = dict.fromkeys((step.name for step in left), "not begun, as a move before it failed")
    found = NotEven(f"{error}; moved before: {moved}")
    found.table = {**out, "moves": [step.to_dict() for step in done],
                   "stays": {**why, left[0].name: str(error)}}  # fmt: skip
    return found


def _all(opts, settings, moves, max_parallel, say, *, source, note):
    """
    Move VMs, several at once; return ``({name: host}, {name: why not}, warnings)``.

    An interruption lets those that are under way come to their end, and begins no other.
    """
    if max_parallel < 1:
        raise BadArgument("max_parallel", f"{max_parallel}; at least 1")
    moved, failed, warnings, lock = {}, {}, {}, threading.Lock()

    def tell(name):
        def one(stage, **figures):
            with lock:
                say(f"{name}: {stage}", **figures)

        return one

    def carry(name, to):
        try:
            done = _moved(opts, settings, name, to, source, tell(name))
        except VirtError as error:
            failed[name] = str(error)
            return
        moved[name], why = done["to"], [done.get("warning")]
        try:
            note(name, done["to"])
        except VirtError as error:
            why.append(f"it has moved, but that was not noted: {error}")
        if any(why):
            warnings[name] = "; ".join(filter(None, why))

    # Salt's functions find their loader through context variables, which threads do not inherit.
    with ThreadPoolExecutor(max_parallel) as pool:
        jobs = {name: pool.submit(contextvars.copy_context().run, carry, name, to)
                for name, to in moves.items()}  # fmt: skip
        not_begun = _ended(pool, jobs, tell)
    failed.update(dict.fromkeys(not_begun, "not begun, the command was interrupted"))
    beside = {"warnings": warnings} if warnings else {}
    return {name: moved[name] for name in moves if name in moved}, failed, beside


def _ended(pool, jobs, tell):
    """Wait for all jobs, if interrupted for those that run; return the names of the others."""
    try:
        wait(jobs.values())
    except (KeyboardInterrupt, SystemExit):
        pool.shutdown(wait=False, cancel_futures=True)
        for name, job in jobs.items():
            if job.running():
                tell(name)("Going on", detail="interrupted: this move is finished, no other begins")
        pool.shutdown()
    not_begun = [name for name, job in jobs.items() if job.cancelled()]
    for name in jobs.keys() - set(not_begun):
        jobs[name].result()
    return not_begun


def _moved(opts, settings, name, to, source, say):
    """Move one VM as planned; if that host refuses, to the next best. Return where it is now."""
    for target in (to,) if source is None else (to, None):
        try:
            return migrate.migrate(opts, settings, name, target, {}, say, source)
        except (DeployError, MoveFailed, NoHostFits) as error:
            failure, there = error, _arrived(opts, settings, name, source)
        if there is not None and (source is not None or there == to):
            why = f"it is on {there}, though its move seemed to fail: {failure}"
            return {"to": there, "warning": why}
        if target is not None:
            say("Placing", detail=f"{to} did not take it: {failure}")
    raise failure


def _arrived(opts, settings, name, source):
    """
    Return the host that has a VM if that is no longer the one it had, None if that is not sure.

    A move is over when the source does not have the VM any more, which it must say itself: the
    target lists one that only arrives too.
    """
    found = find.survey(opts, settings, find.every(opts, settings), "virt.presence", [name])
    having = [host for host, there in found.answers.items() if there["state"] is not None]
    is_sure = source in found.answers if source is not None else not found.reasons()
    return having[0] if len(having) == 1 and having[0] != source and is_sure else None
