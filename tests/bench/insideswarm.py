"""Measure commands in a swarm, from inside: insideswarm.py ROUNDS JSON-list-of-commands."""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

SWARM = Path("/run/swarm")
JOBS = SWARM / "master/cache/jobs"
ONE = "h0001"
# What comes after a command has ended is its too.
_SETTLE_S = 0.5
_TRIES, _AGAIN_S = 5, 20
# What an installed Salt has beside its files, and the checkout has not: compiled modules.
_COMPILED = {"PYTHONPYCACHEPREFIX": str(SWARM / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
_TICKS = os.sysconf("SC_CLK_TCK")


def _stat(pid):
    """Return ``(parent, seconds of CPU)`` of a process, with its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1]), sum(map(int, fields[11:15])) / _TICKS


def _all():
    """Return ``{pid: (parent, CPU)}``."""
    found = {}
    for one in Path("/proc").glob("[0-9]*"):
        try:
            found[int(one.name)] = _stat(one.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _below(root, processes):
    """Return the CPU of a process and of all below it."""
    mine, more = set(), {root}
    while more:
        mine |= more
        more = {pid for pid, (parent, _cpu) in processes.items() if parent in more} - mine
    return sum(processes[pid][1] for pid in mine if pid in processes)


def _run_s(pid):
    """Return the seconds that a process has run, finer than its clock ticks."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(one.read_text().split()[0]) for one in tasks) / 1e9


def _pid(path):
    return int((SWARM / path).read_text())


def _bytes():
    """Return the bytes that have gone over the swarm's only link: all between master and hosts."""
    line = next(one for one in Path("/proc/net/dev").read_text().splitlines() if "lo:" in one)
    return int(line.split(":")[1].split()[0])


def _look():
    processes = _all()
    return {
        "wall_s": time.monotonic(),
        "master_s": _below(_pid("master/pid"), processes),
        "minion_s": _run_s(_pid(f"m/{ONE}/pid")),
        "bytes": _bytes(),
        "files": sum(len(files) for _at, _dirs, files in os.walk(JOBS)),
        "command_s": sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]),
    }


def _run(argv):
    env = {**os.environ, **_COMPILED}
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=env)


def _warm(argv):
    """Do it once; again if it fails, as a thousand hosts that load at once may be late."""
    for _try in range(_TRIES):
        if _run(argv).returncode == 0:
            break
        time.sleep(_AGAIN_S)


def measured(argv, rounds):
    """
    Return the medians of some rounds.

    Before them hosts load modules, and what the command imports is compiled.
    """
    found = []
    _warm(argv)
    for _round in range(rounds):
        before = _look()
        done = _run(argv)
        wall = time.monotonic() - before["wall_s"]
        time.sleep(_SETTLE_S)
        after = _look()
        if done.returncode:
            raise SystemExit(f"{argv}: {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}")
        row = {name: after[name] - before[name] for name in before}
        found.append({**row, "wall_s": wall, "printed": len(done.stdout)})
    return {name: statistics.median(row[name] for row in found) for name in found[0]}


if __name__ == "__main__":
    print(json.dumps([measured(argv, int(sys.argv[1])) for argv in json.loads(sys.argv[2])]))
