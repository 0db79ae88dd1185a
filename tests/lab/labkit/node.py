"""One node of the lab: a set of namespaces that lives as long as its process 1.

Nothing of a node outlives that process: its links, mounts and children go with the
namespaces. Nodes are found by scanning /proc for their mark, so a crash half-way can
leave none that ``down`` would not find.
"""

import os
import signal
import subprocess
from pathlib import Path

from labkit.run import run, wait_for

_MARK = "SALTVIRT_LAB"
_NAMESPACES = ["-m", "-u", "-n", "-p", "-i"]


def _mark(lab):
    return f"{_MARK}={lab.root}".encode()


def _read(path):
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def _is_namespace_init(pid):
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"NSpid:"):
            return len(line.split()) > 2 and line.split()[-1] == b"1"
    return False


def alive(lab):
    """Return ``{node: pid}`` of every process 1 of this lab that runs."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        environ = _read(entry / "environ").split(b"\0")
        if _mark(lab) in environ and _is_namespace_init(entry.name):
            name = next(v for v in environ if v.startswith(b"SALTVIRT_NODE=")).split(b"=")[1]
            found[name.decode()] = int(entry.name)
    return found


def leftovers(lab):
    """Return the ids of all processes that carry this lab's mark."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _mark(lab) in _read(entry / "environ").split(b"\0")
    ]


def mark_children(lab):
    """Have all that this process starts carry the lab's mark, so that ``down`` finds it too."""
    os.environ[_MARK] = str(lab.root)


def start(lab, name):
    """Start a node's namespaces and return the process id of its process 1."""
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    environment.update({_MARK: str(lab.root), "SALTVIRT_NODE": name})
    unshare = ["unshare", "--net", "--uts", "--mount", "--pid", "--ipc", "--fork", "--kill-child"]
    subprocess.Popen(
        [*unshare, "--mount-proc", "--propagation", "private", "tini", "--", "sleep", "infinity"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    pid = wait_for(f"namespaces of {name}", lambda: alive(lab).get(name), timeout_s=20)
    wait_for(f"/proc of {name}", lambda: _has_own_proc(pid), timeout_s=20)
    return pid


def _has_own_proc(pid):
    probe = subprocess.run(
        ["nsenter", "-t", str(pid), *_NAMESPACES, "cat", "/proc/1/comm"],
        capture_output=True,
        text=True,
        check=False,
    )
    return probe.stdout.strip() == "tini"


def kill(pids):
    """Kill these processes and wait until they are gone."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    for pid in pids:
        wait_for(f"the end of process {pid}", lambda pid=pid: _is_gone(pid), timeout_s=30)


def _is_gone(pid):
    stat = _read(f"/proc/{pid}/stat")
    return not stat or stat.rpartition(b")")[2].split()[0] == b"Z"


def enter(pid, argv):
    """Return the command line that runs ``argv`` inside a node."""
    return ["nsenter", "-t", str(pid), *_NAMESPACES, "--", *[str(word) for word in argv]]


def inside(pid, argv, **options):
    """Run a command inside a node and return its output."""
    return run(enter(pid, argv), **options)


def spawn(lab, name, pid, argv, log):
    """Start a daemon inside a node; its output goes to ``log``."""
    environment = {"PATH": f"{lab.venv}/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
    # nsenter stops with its child; unless it is killed too, a killed node waits for it for ever.
    environment.update({"HOME": "/root", _MARK: str(lab.root)})
    with log.open("ab") as out:
        subprocess.Popen(
            enter(pid, argv),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
