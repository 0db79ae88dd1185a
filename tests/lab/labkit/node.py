"""Nodes of the lab: each a Debian of its own, with systemd as process 1 in its own namespaces.

Nothing of a node outlives its process 1 and its power supply (boot.py): links, mounts and children
go with the namespaces. Both are found by scanning /proc for their mark, so a crash half-way can
leave none that ``down`` would not find.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from pathlib import Path

from labkit import boot
from labkit.layers import PLAIN, lower
from labkit.run import run, wait_for
from labkit.settings import MARK, SWITCH, SWITCH_IP, LabError

_NAMESPACES = ["-m", "-u", "-n", "-p", "-i", "-C", "--root", "--wd"]
_DISK_GIB = 100


def _mark(lab):
    return f"{MARK}={lab.root}".encode()


def _read(path):
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def _is_ours(pid):
    """Return whether a process with the mark is root's, and of this machine or a node's first."""
    here = (len(_ids(pid)) == 1 and int(pid) != 1) or _is_namespace_init(pid)
    return here and boot.is_roots(pid)


def _ids(pid):
    """Return a process's ids, in this process's namespace and in each below."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"NSpid:"):
            return line.split()[1:]
    return []


def _is_namespace_init(pid):
    ids = _ids(pid)
    return len(ids) == 2 and ids[1] == b"1"


def _processes():
    """Yield the id and the environment of each process that carries the mark of any lab."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            environ = _read(entry / "environ").split(b"\0")
            marks = [one for one in environ if one.startswith(f"{MARK}=".encode())]
            if marks and _is_ours(entry.name):
                yield int(entry.name), environ


def _marked(lab):
    return [(pid, environ) for pid, environ in _processes() if _mark(lab) in environ]


def labs():
    """Return the folders of all labs of this machine that are up, also half-way."""
    start = f"{MARK}=".encode()
    return {
        one.removeprefix(start).decode()
        for _, environ in _processes()
        for one in environ
        if one.startswith(start)
    }


def alive(lab):
    """Return ``{node: pid}`` of every process 1 of this lab that runs systemd."""
    found = {}
    for pid, environ in _marked(lab):
        names = [v for v in environ if v.startswith(b"SALTVIRT_NODE=")]
        if names and _is_namespace_init(pid):
            found[names[0].split(b"=")[1].decode()] = pid
    return found


def leftovers(lab):
    """Return the ids of all processes that carry this lab's mark."""
    return [pid for pid, _ in _marked(lab)]


def group(lab, name):
    """Return the name of a node's group of processes."""
    digest = hashlib.sha256(str(lab.root).encode()).hexdigest()[:8]
    return f"saltvirt-lab-{digest}-{name}"


def create(lab, name, stack, *, link=None, shares=()):
    """Make a node that has never booted; return the folder of what its first boot adds."""
    folder = lab.node_dir(name)
    if (folder / "node.json").exists():
        raise LabError(f"{name} is there, and off: lab on {name}, or lab remove {name}")
    (folder / "seed").mkdir(parents=True)
    made = {
        "name": name,
        "lower": lower(stack),
        "group": group(lab, name),
        "link": link,
        "shares": list(shares),
        "release": stack[-1].name.partition("-")[0],
    }
    (folder / "node.json").write_text(json.dumps(made))
    with (folder / "disk.img").open("wb") as disk:
        disk.truncate(_DISK_GIB << 30)
    options = "lazy_itable_init=1,lazy_journal_init=1,nodiscard"
    run(["mkfs.ext4", "-q", "-m", "0", "-J", "size=64", "-E", options, folder / "disk.img"])
    return folder / "seed"


def about(lab, name):
    """Return what a node was made of: its name, layers and link."""
    return json.loads((lab.node_dir(name) / "node.json").read_text())


def mark_children(lab):
    """Have all that this process starts carry the lab's mark, so that ``down`` finds it too."""
    os.environ[MARK] = str(lab.root)


def power_on(lab, name):
    """Start a node's power supply and return the process id of its process 1."""
    folder = lab.node_dir(name)
    argv = ["unshare", "--mount", "--propagation", "private", sys.executable, "-B", boot.__file__]
    with (folder / "power").open("ab") as log:
        supply = subprocess.Popen(
            [*argv, folder],
            env={**PLAIN, MARK: str(lab.root)},
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    wait_for(
        f"the power of {name}",
        lambda: _has_power(lab, name) or supply.poll() is not None,
        timeout_s=20,
    )
    return _booted(lab, name)


def _booted(lab, name, but=None):
    def pid():
        found = alive(lab).get(name)
        if not found and not _has_power(lab, name):
            raise LabError(f"{name} does not boot: {_last_words(lab.node_dir(name))}")
        return found if found != but else None

    # Before it boots again, systemd may wait for 90 s until a minion has stopped.
    found = wait_for(f"the boot of {name} (see {lab.node_dir(name)}/power)", pid, timeout_s=150)
    if name == SWITCH:
        # Where the others' links go: boot.py reads it.
        wait_for("the switch's bridge", lambda: _has_bridge(found), timeout_s=60)
        (lab.node_dir(name) / "pid").write_text(str(found))
        # The others' cables have gone with the switch that they were plugged into.
        for other, other_pid in alive(lab).items():
            if link := about(lab, other)["link"]:
                boot.plug(lab.root, link, other_pid)
    return found


def _last_words(folder):
    """Return the line by which a node ended: of its power supply, or of its own console."""
    for log in ("power", "console"):
        text = _read(folder / log).decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if "dmesg(1)" not in line]
        if said := [line for line in lines if line]:
            return said[-1]
    return "no power, and not a word"


def _has_bridge(pid):
    return (
        subprocess.run(
            ["nsenter", "-t", str(pid), "-n", "ip", "link", "show", "dev", "segment"],
            capture_output=True,
            check=False,
        ).returncode
        == 0
    )


def pid_of(lab, name):
    """Return the process id of a node's process 1; raise LabError if it is not up."""
    pids = alive(lab)
    if name not in pids:
        raise LabError(f"{name} is not up (up: {', '.join(sorted(pids)) or 'nothing'}): lab up")
    return pids[name]


def wait_until_started(lab, name):
    """Wait until systemd has started all it starts; raise LabError that names what failed."""
    pid = alive(lab)[name]
    bus = root(lab, name) / "run/dbus/system_bus_socket"
    wait_for(f"the bus of {name}", bus.exists, timeout_s=60)
    argv = enter(pid, ["systemctl", "is-system-running", "--wait"])
    subprocess.run(argv, capture_output=True, check=False, timeout=180)
    failed = inside(pid, ["systemctl", "list-units", "--failed", "--plain", "--no-legend"])
    if failed.strip():
        raise LabError(f"{name}: units failed:\n{failed}")


def reboot(lab, name):
    """Reboot a node as its administrator would; return its new process 1."""
    pid = pid_of(lab, name)
    subprocess.run(enter(pid, ["systemctl", "reboot"]), capture_output=True, check=False)
    return _booted(lab, name, but=pid)


def crash(lab, name):
    """Cut a node's power for a moment; return its new process 1."""
    pid = pid_of(lab, name)
    os.kill(_power_supply(lab, name), signal.SIGUSR1)
    return _booted(lab, name, but=pid)


def _power_supply(lab, name):
    folder = str(lab.node_dir(name)).encode()
    for pid, _ in _marked(lab):
        words = _read(f"/proc/{pid}/cmdline").split(b"\0")
        if words[-2:-1] == [folder] and any(word.endswith(b"boot.py") for word in words):
            return pid
    raise LabError(f"{name} has no power")


def power_off(lab, name):
    """Shut a node down and wait until it is off."""
    pid = pid_of(lab, name)
    subprocess.run(enter(pid, ["systemctl", "poweroff"]), capture_output=True, check=False)
    wait_for(
        f"the end of {name}", lambda: _is_gone(pid) and not _has_power(lab, name), timeout_s=60
    )


def _has_power(lab, name):
    try:
        return _power_supply(lab, name)
    except LabError:
        return None


def remove(lab, name):
    """End a node at once and forget it."""
    kill([pid for pid in (_has_power(lab, name), alive(lab).get(name)) if pid])
    clear(lab, name)


def clear(lab, name):
    """Remove what a node that has ended leaves: its folder and its groups."""
    wait_for(f"the processes of {name}", lambda: _try_groups(lab, name), timeout_s=30)
    shutil.rmtree(lab.node_dir(name))


def _try_groups(lab, name):
    try:
        boot.remove_cgroups(group(lab, name))
    except OSError:
        return False
    return True


def cut(lab, name, is_cut=True):
    """Pull a node's network cable, or plug it in again."""
    mark = lab.node_dir(name) / "cut"
    state = "down" if is_cut else "up"
    inside(pid_of(lab, SWITCH), ["ip", "link", "set", "dev", name, state])
    if is_cut:
        mark.touch()
    else:
        mark.unlink(missing_ok=True)


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
    """Return the command line that runs ``argv`` inside a node, as root at its console."""
    words = [str(word) for word in argv]
    clean = [
        "setpriv",
        "--bounding-set",
        boot.DENIED,
        "--inh-caps",
        boot.DENIED,
        "env",
        "-i",
        *(f"{key}={value}" for key, value in PLAIN.items()),
    ]
    for name in ("TERM", "COLUMNS"):
        if name in os.environ:
            clean.append(f"{name}={os.environ[name]}")
    return ["nsenter", "-t", str(pid), *_NAMESPACES, "--", *clean, *words]


def inside(pid, argv, **options):
    """Run a command inside a node and return its output."""
    return run(enter(pid, argv), **options)


def write(seed, files):
    """Write the files that a node gets at its first boot."""
    for name, text in files.items():
        path = seed / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def identity(name):
    """Return the files that make a node itself, as Debian's installer writes them."""
    return {
        "etc/hostname": f"{name}\n",
        "etc/machine-id": f"{uuid.uuid4().hex}\n",
        "etc/hosts": f"127.0.0.1 localhost\n127.0.1.1 {name}\n::1 localhost ip6-localhost\n",
        "etc/resolv.conf": f"nameserver {SWITCH_IP}\n",
        "etc/apt/sources.list": "",
    }


def root(lab, name):
    """Return the path by which this machine sees a running node's files."""
    return Path(f"/proc/{pid_of(lab, name)}/root")
