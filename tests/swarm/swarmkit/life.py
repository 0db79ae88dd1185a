"""A swarm as it is seen from the machine: brought up, entered, taken down."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from swarmkit.settings import CHECKOUT, HERE, Spec, SwarmError

_ALONE = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child=KILL", "--mount-proc")
_DOWN_S = 20
_NONE = "no swarm is up; bring one up: tests/swarm/swarm up 20"
# What this process has begun, and it alone can wait for.
_BEGUN = {}
# Each line of Salt's own Python, in the tests' root.
_ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/root",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def pid_of(place):
    """Return the process id of a swarm's first process, None if it does not run."""
    try:
        pid, began = place.pid.read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    return int(pid) if _began(pid) == began else None


def _began(pid):
    """Return when a process began, by which it is told from a later one of its number."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None


def spec_of(place):
    """Return what the swarm that runs is made of."""
    if pid_of(place) is None:
        raise SwarmError(_NONE)
    return Spec.read(place.spec.read_text())


def up(place, spec):
    """Bring a swarm up; return in how many seconds."""
    if not Path(spec.python).exists():
        raise SwarmError(f"{spec.python} is missing: run it by tests/swarm/swarm, or by tests/env")
    if pid_of(place) is not None:
        raise SwarmError("a swarm is up already; take it down first: tests/swarm/swarm down")
    shutil.rmtree(place.folder, ignore_errors=True)
    place.folder.mkdir(mode=0o700, parents=True)
    place.spec.write_text(spec.written())
    argv = [*_ALONE, spec.python, "-m", "swarmkit.boot", spec.written(), str(place.ready)]
    environment = {**_ENVIRONMENT, "PYTHONPATH": str(HERE.parent)}
    with place.log.open("wb") as said:
        process = subprocess.Popen(
            argv,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    try:
        _note(place, process)
        _wait(place, process)
    except BaseException:
        process.kill()
        process.wait()
        shutil.rmtree(place.folder, ignore_errors=True)
        raise
    _BEGUN[place.folder] = process
    return float(place.ready.read_text())


def _note(place, process):
    """Note the process id of the first process, a child of unshare's."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.poll() is None:
        found = children.read_text().split()
        if found:
            place.pid.write_text(f"{found[0]} {_began(found[0])}")
            return
        time.sleep(0.01)


def _wait(place, process):
    while not place.ready.exists():
        if process.poll() is not None:
            said = "\n".join(place.log.read_text(errors="replace").splitlines()[-20:])
            raise SwarmError(f"the swarm did not come up:\n{said}")
        time.sleep(0.05)


def down(place):
    """Take a swarm down; return whether there was one."""
    pid = pid_of(place)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + _DOWN_S
        process = _BEGUN.pop(place.folder, None)
        if process is not None:
            process.wait(_DOWN_S)
        while pid_of(place) is not None:
            if time.monotonic() > end:
                raise SwarmError(f"the swarm's first process, {pid}, does not end")
            time.sleep(0.05)
    shutil.rmtree(place.folder, ignore_errors=True)
    return pid is not None


def inside(place, argv):
    """Return the command that runs a command in a swarm."""
    pid = pid_of(place)
    if pid is None:
        raise SwarmError(_NONE)
    if not place.ready.exists():
        raise SwarmError("the swarm is not up yet")
    spaces = ("--mount", "--net", "--pid", "--root")
    settings = [f"{name}={value}" for name, value in _ENVIRONMENT.items()]
    return [
        "nsenter",
        "--target",
        str(pid),
        *spaces,
        "env",
        "-i",
        "--chdir=/",
        *settings,
        *map(str, argv),
    ]


def salt(place, program, words, config="etc"):
    """Return the command that runs one of Salt's programs on a swarm's master."""
    python = spec_of(place).python
    folder = f"/run/swarm/master/{config}"
    return inside(place, [python, Path(python).with_name(program), "-c", folder, *words])


def by_env(words):
    """Become the same command in the tests' root, where each line of Salt is."""
    os.chdir(CHECKOUT)
    program = CHECKOUT / "tests/env"
    os.execv(program, [str(program), "python3", "tests/swarm/swarm", *words])
    sys.exit(1)


def is_in_root():
    """Return whether this process is in the tests' root."""
    return Path("/opt/tests/bin").exists()


def run(place, argv, *, given=None):
    """Run a command in a swarm and return its output; raise SwarmError if it fails."""
    done = subprocess.run(
        inside(place, argv),
        input=given,
        stdin=None if given is not None else subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise SwarmError(f"{' '.join(map(str, argv[:3]))} … exited with {done.returncode}: {said}")
    return done.stdout.rstrip("\n")


def write(place, path, text):
    """Write a file of the swarm's, whole or not at all."""
    run(place, ["sh", "-euc", 'cat >"$0.part"; mv "$0.part" "$0"', path], given=text)


def signal_from(place, path, name):
    """Send a signal to the process whose id is in a file of the swarm's."""
    run(place, ["sh", "-euc", 'kill -s "$1" "$(cat "$0")"', path, name])


def share_mib(place, names):
    """Return the memory that the process of some hosts takes, its share of what is shared."""
    script = 'awk "/^Pss:/ {print \\$2}" "/proc/$(cat "$0")/smaps_rollup"'
    return int(run(place, ["sh", "-euc", script, f"/run/swarm/m/{names[0]}/pid"])) / 1024
