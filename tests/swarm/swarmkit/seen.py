"""What an inspector inside a swarm sees of master and hosts, and does to them from outside."""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from urllib.parse import unquote

from saltvirt.cluster.rpc import minions
from saltvirt.core import locks

from swarmkit import clock, conf
from swarmkit.settings import OWN, ROOT
from swarmkit.standin import connection, texts

_MASTERS = conf.MASTER / "cache"
_digests = {}


def _hosts():
    return sorted(one.name for one in conf.HOSTS.iterdir())


@contextlib.contextmanager
def _still():
    """Have no host's libvirt change anything until the block ends."""
    with contextlib.ExitStack() as stack:
        for host in _hosts():
            handle = stack.enter_context((conf.HOSTS / host / "libvirt/lock").open("a"))
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _json(path, default=None):
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return default


def _domains(host):
    found = _json(conf.HOSTS / host / "libvirt/domains.json", {"domains": {}})
    return {name: _domain(one) for name, one in found["domains"].items()}


def _domain(one):
    text = one["live"] or one["xml"]
    both = [texts.figures(it) for it in (one["live"], one["xml"]) if it]
    return {
        "uuid": one["uuid"],
        "is_up": one["live"] is not None,
        "state": [one["state"], one["reason"]],
        "is_defined": one["persistent"],
        "is_coming": bool(one.get("incoming")),
        "is_at_job": bool(one.get("job")),
        "starts": one["autostart"],
        "is_kept": "moved_to" in text,
        "memory_mib": max(it.most_memory for it in both) // 1024,
        "files": sorted({disk.path for it in both for disk in it.disks if disk.path}),
    }


def _records(folder):
    found = []
    for path in sorted(folder.glob("*/*.json")):
        record = _json(path)
        if record is None:  # it has just ended
            continue
        facts = record.get("facts", {})
        found.append(
            {
                "purpose": path.parent.name,
                "name": unquote(path.stem),
                "phase": record.get("phase"),
                "paths": [*facts.get("paths", ()), *facts.get("images", {}).values()],
                "is_live": locks.is_held(path.with_suffix(".lock")),
            }
        )
    return found


def _files(host):
    """Return the files in a host's image folder, without its cache of images."""
    folder = conf.HOSTS / host / "img"
    found = (one for one in folder.rglob("*") if one.is_file() and not one.is_symlink())
    names = (str(one.relative_to(folder)) for one in found)
    return sorted(name for name in names if not name.startswith("base/"))


def _digest(path):
    try:
        stat = path.stat()
        stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if stamp not in _digests:
            _digests[stamp] = hashlib.sha256(path.read_bytes()).hexdigest()
        return _digests[stamp]
    except FileNotFoundError:
        return None


def _parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def jobs():
    """Return the process ids of jobs that hosts are at, and of moves."""
    own, found = {int((conf.HOSTS / host / "pid").read_text()) for host in _hosts()}, []
    for pid in own.copy():
        with contextlib.suppress(OSError):
            own.add(_parent(pid))
    for one in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if one.name.isdigit() and b"swarmkit.herd" in (one / "cmdline").read_bytes():
                found.append(int(one.name))
    return sorted(set(found) - own)


def look():
    """Return all there is: of domains at one moment, of all else soon after that."""
    with _still():
        domains = {host: _domains(host) for host in _hosts()}
        hosts = {
            host: {
                "domains": domains[host],
                "records": _records(conf.HOSTS / host / "state/records"),
                "files": {one: _digest(conf.HOSTS / host / "img" / one) for one in _files(host)},
            }
            for host in _hosts()
        }
    keys = {one.name for one in (conf.MASTER / "pki/minions").iterdir()} - set(hosts)
    orders = _records(_MASTERS / "salt-virt/records")
    return {"hosts": hosts, "keys": sorted(keys), "orders": orders, "jobs": jobs()}


def reset():
    """Have master and hosts as they were when they came up, without VMs and records."""
    with _still():
        for host in _hosts():
            folder = conf.HOSTS / host
            (folder / "libvirt/domains.json").unlink(missing_ok=True)
            for one in [*(folder / "img").iterdir(), *(folder / "state").iterdir()]:
                shutil.rmtree(one) if one.is_dir() else one.unlink()
    for one in _MASTERS.glob("salt-virt*"):
        shutil.rmtree(one) if one.is_dir() else one.unlink()
    for one in (conf.MASTER / "pki/minions").iterdir():
        if one.name not in _hosts():
            one.unlink()
    shutil.rmtree(clock.FOLDER, ignore_errors=True)
    conf.FAULTS.write_text("[]")


def mark(host, name, number):
    """Write something into the disk of a VM, as its guest would; every other one is autostarted."""
    conn = connection.Connection(conf.HOSTS / host / "libvirt", readonly=False)
    conn.lookupByName(name).setAutostart(number % 2)
    disk = f"img/{name}_system.qcow2"
    # What it is based on has the path by which its host sees it.
    argv = ["nsenter", "--target", (conf.HOSTS / host / "pid").read_text(), "--mount"]
    argv += ["qemu-io", "-f", "qcow2", "-c", f"write -P {number % 255 + 1} 1M 64k", OWN / disk]
    subprocess.run(argv, check=True, capture_output=True)
    return _digest(conf.HOSTS / host / disk)


def jump(who, by_s):
    """Have the clock of a host, or of the master's commands, be so many seconds ahead."""
    clock.FOLDER.mkdir(exist_ok=True)
    part = ROOT / "clock.part"
    part.write_text(str(by_s))
    part.rename(clock.FOLDER / who)


def kill(host):
    """End a host's process, if it runs; what it has forked goes on."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(int((conf.HOSTS / host / "pid").read_text()), signal.SIGKILL)


def kill_job(number):
    """End one of the jobs that hosts are at; return at which of them, None without any."""
    found = []
    for host in _hosts():
        pid = (conf.HOSTS / host / "pid").read_text()
        with contextlib.suppress(FileNotFoundError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            found += [(host, int(one)) for one in children]
    if not found:
        return None
    host, pid = found[number % len(found)]
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return host


def hurry(return_s):
    """Have commands wait so long for the answer of a job that has ended: hosts here send once."""
    minions._RETURN_S = return_s


DO = {one.__name__: one for one in (look, reset, mark, jump, kill, kill_job, jobs, hurry)}
