"""What the lab needs on the machine itself: a few tools, no daemon, no kernel, no emulator."""

import ctypes
import os
import shutil
from pathlib import Path

from labkit.layers import PLAIN, locked
from labkit.run import run
from labkit.say import say
from labkit.settings import CACHE, LabError

# Program, its Debian package, what it is for.
TOOLS = (
    ("mmdebstrap", "mmdebstrap", "Debian roots"),
    ("ip", "iproute2", "links between the nodes"),
    ("unshare", "util-linux", "namespaces"),
    ("setpriv", "util-linux", "nodes that cannot load modules or set the clock"),
    ("mount", "mount", "layers"),
    ("mkfs.ext4", "e2fsprogs", "the nodes' disks"),
)

# Root's processes share them, also those of nodes: without, units of the machine itself fail.
_WATCHES = Path("/proc/sys/fs/inotify/max_user_instances")
_WATCHES_OF_A_NODE = 9  # 5 of systemd's own, then logind, libvirtd, NetworkManager …


def missing():
    """Return the Debian packages whose programs are not here, each with what it is for."""
    path = f"{PLAIN['PATH']}:{os.environ['PATH']}"
    return {
        package: purpose for name, package, purpose in TOOLS if not shutil.which(name, path=path)
    }


def _named(wanted):
    return ", ".join(f"{package} ({purpose})" for package, purpose in sorted(wanted.items()))


def must_be_root():
    """Raise LabError for anybody else, who could not even see what is up."""
    if os.geteuid() != 0:
        more = f"; it would install {_named(wanted)}" if (wanted := missing()) else ""
        raise LabError(f"the lab makes namespaces and mounts: run it as root{more}")


def check():
    """Make sure of the tools; what is missing is named, then installed."""
    must_be_root()
    if not (wanted := missing()):
        return
    if not shutil.which("apt-get"):
        raise LabError(f"no apt-get here; install these by hand: {_named(wanted)}")
    with locked("apt"):
        say(f"installing on this machine, tools alone, nothing that runs: {_named(wanted)}")
        environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        run(["apt-get", "update", "-qq"], env=environment)
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *wanted]
        run(install, env=environment, log=CACHE / "apt.log")


def _free(wanted):
    """Return how many inotify instances root can still have on this machine, up to so many."""
    library, handles = ctypes.CDLL(None), []
    while len(handles) < wanted and (handle := library.inotify_init1(0)) >= 0:
        handles.append(handle)
    for handle in handles:
        os.close(handle)
    return len(handles)


def room(nodes):
    """Raise LabError if so many more nodes would take from this machine what it needs itself."""
    wanted = nodes * _WATCHES_OF_A_NODE
    if wanted > 0 and (free := _free(wanted)) < wanted:
        most = int(_WATCHES.read_text())
        raise LabError(
            f"{nodes} nodes need {wanted} inotify instances, and root can have {free} "
            f"more: sysctl fs.inotify.max_user_instances={most + wanted}"
        )
