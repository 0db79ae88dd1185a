"""Reset guests whose kernel stands still before its init, a rare fault of emulated processors."""

import re
import threading
from contextlib import contextmanager, suppress

from labkit.settings import LabError

_EVERY_S = 10
# The kernel's own task 1 has no device and no program of the guest's to wait for yet.
_STANDS = re.compile(r"INFO: task swapper/0:1 blocked for more than")
_TAIL_BYTES = 2048
# What a host that a test restarts answers.
_RESTARTED = (OSError, KeyError, LabError)


def stands(console):
    """Return whether the last that a console shows is a kernel that stands before its init."""
    lines = [line for line in console.splitlines() if line.strip()]
    return any(map(_STANDS.search, lines[-3:]))


@contextmanager
def watching(cloud):
    """Look at the consoles of all hosts while the block runs; a reset is printed."""
    over = threading.Event()
    thread = threading.Thread(target=watch, args=(cloud, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def watch(cloud, over):
    """Look at the consoles of all hosts until it is over."""
    been = {}
    while not over.wait(_EVERY_S):
        for host in cloud.hosts:
            for path in _consoles(cloud, host):
                end = _end(path)
                if stands(end) and been.get(path) != end:
                    been[path] = end
                    name = path.name.removesuffix("-console.log")
                    print(f"{host}: {name} stands before its init: virsh reset {name}", flush=True)
                    with suppress(*_RESTARTED):
                        cloud.sh(host, f"virsh -q reset {name} || true")


def _consoles(cloud, host):
    try:
        return sorted((cloud.folder(host) / "var/log/libvirt/qemu").glob("*-console.log"))
    except _RESTARTED:
        return []


def _end(path):
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:  # it went meanwhile
        return ""
