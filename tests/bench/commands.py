"""
What the runner's commands cost at 10, 50 and 200 hosts with 50 VMs each, on a swarm.

Beside them `salt '*' test.ping`, the floor, in the same run; then, on a swarm of Salt 3006.25, our
runner beside that release's own, which asks the same hosts for the same modules' answers. Where the
hosts are many, what is asked of them is asked again with one of twenty dead: they hear of no job.
As a program: commands.py [--rounds N] [--unfiltered] [SIZE...]
"""

import argparse
import json
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "swarm"), str(HERE.parents[1] / "_utils")]

from swarmkit import conf, life  # noqa: E402
from swarmkit.settings import Spec, SwarmError, place  # noqa: E402

SIZES, VMS, ROUNDS = (10, 50, 200), 50, 3
HEADS = (
    "hosts",
    "command",
    "wall",
    "CPU master",
    "of a host",
    "of itself",
    "bus",
    "printed",
    "files",
)
VM = "vm-h0007-003"
FLOOR, BARE = "test.ping", "bare salt-run"
# Each host is asked for all it has, as for each VM before there were brief facts.
WHOLE = "init dry_run of whole answers"
# Of so many hosts one of twenty is dead; a question may take so much longer for it.
_MANY, _OF_DEAD, _MORE_S = 200, 20, 2
# Less processor time than this is lost in that of other things.
_CLEAR_S = 0.1
_QUESTIONS = ("list", "query", "vm_info NAME", "host_info")
_INIT = ("salt-run", "virt.init", "fresh1", "1", "512", "seed=False", "dry_run=True")
OURS = {
    FLOOR: ("salt", "*", "test.ping"),
    BARE: ("salt-run", "test.arg"),
    "list": ("salt-run", "virt.list"),
    "query": ("salt-run", "virt.query"),
    "vm_info NAME": ("salt-run", "virt.vm_info", VM),
    "host_info": ("salt-run", "virt.host_info"),
    "init dry_run": _INIT,
    WHOLE: (*_INIT, "headroom=True"),
}
THEIRS = {
    "3006.25's list": ("core", "virt.list"),
    "3006.25's query": ("core", "virt.query"),
    "3006.25's vm_info NAME": ("core", "virt.vm_info", VM),
    "3006.25's host_info": ("core", "virt.host_info"),
}
TITLE = f"what commands cost on Salt {{}}, {VMS} VMs a host, median of {{}}"


def _argv(python, words):
    """Return a command as it runs inside: ``core`` is salt-run without this project."""
    program, *rest = words
    config, program = ("core", "salt-run") if program == "core" else ("etc", program)
    path = str(Path(python).with_name(program))
    return [python, path, "-c", f"/run/swarm/master/{config}", *rest]


@contextmanager
def swarm(spec):
    """Yield the place of a swarm that is up, which no test has."""
    own = replace(place(), folder=place().folder.with_name(f"{place().folder.name}bench"))
    life.up(own, spec)
    try:
        yield own
    finally:
        life.down(own)


def measured(spec, rounds):
    """Return ``{command: figures}`` of one swarm, and those with dead hosts, if it has many."""
    commands = {**OURS, **(THEIRS if spec.salt == "3006" else {})}
    with swarm(spec) as own:
        alive = timed(own, spec, commands, rounds)
        if spec.salt == "3006" or spec.hosts < _MANY:
            return alive, {}
        dead = [{"host": host, "silent": True} for host in spec.ids[-(spec.hosts // _OF_DEAD) :]]
        life.write(own, conf.FAULTS, json.dumps(dead))
        return alive, timed(own, spec, {name: OURS[name] for name in _QUESTIONS}, rounds)


def timed(own, spec, commands, rounds):
    """Return ``{command: figures}`` of some commands on a swarm that is up."""
    argv = [_argv(spec.python, words) for words in commands.values()]
    words = [spec.python, HERE / "insideswarm.py", str(rounds), json.dumps(argv)]
    said = json.loads(life.run(own, words).splitlines()[-1])
    # Hosts that share a process share its time.
    shared = len(spec.groups[0])
    return {
        name: {**one, "minion_s": one["minion_s"] / shared}
        for name, one in zip(commands, said, strict=True)
    }


def _row(hosts, name, one):
    return (
        hosts,
        name,
        f"{one['wall_s']:.2f} s",
        f"{one['master_s']:.2f} s",
        f"{1000 * one['minion_s']:.0f} ms",
        f"{one['command_s']:.2f} s",
        f"{one['bytes'] / 1e6:.2f} MB",
        f"{one['printed'] / 1e6:.2f} MB",
        int(one["files"]),
    )


def _note(found, salt, hosts, by, dead):
    """Note the ratios: of walls to the floor, and of walls and bytes to the rival's."""
    for name, one in dead.items():
        most = by[name]["wall_s"] + _MORE_S
        found[f"{name} of {hosts} hosts, 5 % dead, {_MORE_S} s more"] = one["wall_s"] / most
    if salt == "3008":
        for name in ("list", "host_info", "query", "init dry_run"):
            found[f"{name} of {hosts} hosts, test.ping"] = by[name]["wall_s"] / by[FLOOR]["wall_s"]
        brief = by["init dry_run"]["bytes"] / by[WHOLE]["bytes"]
        found[f"bytes of brief facts of {hosts} hosts, whole answers"] = brief
        return
    for rival in THEIRS:
        name = rival.removeprefix("3006.25's ")
        mine, other = by[name]["wall_s"], by[rival]["wall_s"]
        found[f"{name} of {hosts} hosts, {rival}"] = mine / other
        bare = by[BARE]["wall_s"]
        found[f"{name} of {hosts} hosts less a bare start, {rival}"] = (mine - bare) / (
            other - bare
        )
        # The hosts share the machine's processors, which those of a cloud do not.
        spent, theirs = _spent(by, name), _spent(by, rival)
        if min(spent, theirs) > _CLEAR_S:
            found[f"CPU of master for {name} of {hosts} hosts, {rival}"] = spent / theirs
        found[f"bytes of {name} of {hosts} hosts, {rival}"] = by[name]["bytes"] / by[rival]["bytes"]


def _spent(by, name):
    """Return the processor time of a command and of its master, less that of a bare start."""
    return sum(by[name][key] - by[BARE][key] for key in ("command_s", "master_s"))


def rows(spec, rounds, found):
    """Return the rows of one swarm; note the ratios in ``found``."""
    by, dead = measured(spec, rounds)
    _note(found, spec.salt, spec.hosts, by, dead)
    every = {**by, **{f"{name}, 5 % dead": one for name, one in dead.items()}}
    return [_row(spec.hosts, name, one) for name, one in every.items()]


def tables(found, sizes=SIZES, rounds=ROUNDS, options=None):
    """Yield ``(title, heads, rows)`` of each size, on both lines of Salt."""
    for hosts in sizes:
        for salt in ("3008", "3006"):
            spec = Spec(hosts=hosts, vms=VMS, salt=salt, options=options or {})
            yield TITLE.format(salt, rounds), HEADS, rows(spec, rounds, found)


if __name__ == "__main__":
    import run

    parser = argparse.ArgumentParser(description="what the runner's commands cost on swarms")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--unfiltered", action="store_true", help="without Salt's zmq_filtering")
    parser.add_argument("sizes", type=int, nargs="*", default=SIZES)
    given, noted = parser.parse_args(), {}
    unfiltered = {"zmq_filtering": False} if given.unfiltered else {}
    try:
        for one in tables(noted, given.sizes, given.rounds, unfiltered):
            run.table(*one)
    except SwarmError as error:
        sys.exit(f"commands: {error}")
    print(json.dumps({name: round(one, 3) for name, one in noted.items()}, indent=2))
