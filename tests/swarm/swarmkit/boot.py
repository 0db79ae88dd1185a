"""
A swarm's first process, in network, mount and process namespaces of its own.

When it ends, so does all of the swarm, and nothing of it is left: its files are in memory that is
seen in these namespaces alone.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from swarmkit import conf
from swarmkit.settings import CHECKOUT, HERE, OWN, ROOT, Spec

_MASTER_S, _EACH_S = 120, 3.0
_AGAIN_S = 0.2
_QEMU_PKI = Path("/etc/pki/qemu")
# libvirt makes it; VMs with a console's log move only to hosts that have it.
_LOGS = Path("/var/log/libvirt/qemu")


def _run(*argv):
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


def _surroundings():
    """Make what hosts see of a machine: their files, /sys of this network, a bridge."""
    ROOT.mkdir(parents=True, exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", "mode=700", "tmpfs", ROOT)
    _run("mount", "-t", "sysfs", "sysfs", "/sys")
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "br0", "type", "bridge")
    _run("ip", "link", "set", "br0", "up")
    # Hosts look whether they have certificates before they move anything; nobody asks for them.
    _QEMU_PKI.mkdir(parents=True, exist_ok=True)
    _run("mount", "-t", "tmpfs", "tmpfs", _QEMU_PKI)
    for name in ("ca-cert.pem", "client-cert.pem", "client-key.pem"):
        (_QEMU_PKI / name).touch()
    _LOGS.mkdir(parents=True, exist_ok=True)
    for folder in (ROOT / "up", ROOT / "off", OWN):
        folder.mkdir()


def _begin(log, *argv):
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "HOME": "/root",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": f"{HERE.parent}:{CHECKOUT / '_utils'}",
        # One arena: with one for each thread a host takes 10 MiB more.
        "MALLOC_ARENA_MAX": "1",
    }
    with (ROOT / log).open("ab") as said:
        return subprocess.Popen(
            argv, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )


def _master(spec):
    program = str(Path(spec.python).with_name("salt-master"))
    return _begin("master.out", spec.python, program, "-c", str(conf.MASTER / "etc"))


def _herd(spec):
    return _begin("herd.out", spec.python, "-m", "swarmkit.herd", spec.written())


def _answers():
    try:
        socket.create_connection(("127.0.0.1", conf.RETURN_PORT), 1).close()
    except OSError:
        return False
    return True


def _wait(what, limit_s, is_there, process, log):
    """Wait until something is there; end with the reason if it is not."""
    end = time.monotonic() + limit_s
    while not is_there():
        if process.poll() is not None or time.monotonic() > end:
            tail = (ROOT / log).read_text(errors="replace").splitlines()[-15:]
            print(f"{what}: not within {limit_s:.0f} s\n" + "\n".join(tail), flush=True)
            sys.exit(1)
        time.sleep(0.05)


def _up(spec):
    """Bring up the master and the hosts; return the processes by what begins them."""
    conf.write(spec)
    conf.keys(spec)
    master = _master(spec)
    _wait("the master answers", _MASTER_S, _answers, master, "master.out")
    herd = _herd(spec)

    def are_up():
        return sum(1 for _ in (ROOT / "up").iterdir()) == spec.hosts

    limit_s = 180 + spec.hosts * _EACH_S
    _wait(f"all of {spec.hosts} hosts are up", limit_s, are_up, herd, "herd.out")
    return {_master: master, _herd: herd}


def _tend(spec, processes):
    """Take in whoever ends, and begin the master and the hosts anew, as systemd does."""
    while True:
        pid, _status = os.wait()
        for begin, process in processes.items():
            if process.pid == pid:
                time.sleep(_AGAIN_S)
                processes[begin] = begin(spec)
                break


def main():
    """Be the first process."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spec, ready = Spec.read(sys.argv[1]), Path(sys.argv[2])
    started = time.monotonic()
    _surroundings()
    processes = _up(spec)
    part = ready.with_suffix(".part")
    part.write_text(f"{time.monotonic() - started:.1f}")
    part.rename(ready)
    _tend(spec, processes)


if __name__ == "__main__":
    main()
