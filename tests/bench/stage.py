"""
What the measured host is given, all of it below one folder: scripts, images, rivals' programs.

Nothing is installed there: each rival is unpacked from a layer of the lab's cache.
"""

import json
import statistics
import time
from pathlib import Path

from labkit import layers, node, pythons, roots
from labkit.layers import PLAIN
from labkit.run import run

HERE = Path(__file__).resolve().parent
# A folder of the node.
PLACE = Path("/srv/bench")
PYTHON = "/opt/saltstack/salt/bin/python3"
IMAGES = ("debian-minion", "tiny")
ROUNDS = 5
_UNPACK = """
apt-get update -qq
cd /tmp
apt-get download -qq guestfs-tools lsof
for deb in *.deb; do dpkg-deb -x "$deb" /opt/tools; done
rm -rf *.deb /var/lib/apt/lists/*
"""
_RIVAL = f"""\
id: rival
file_client: local
root_dir: {PLACE}/rival
pki_dir: {PLACE}/rival/pki
cachedir: {PLACE}/rival/cache
sock_dir: {PLACE}/rival/run
log_file: {PLACE}/rival/log
enable_fqdns_grains: False
enable_gpu_grains: False
"""


def tools():
    """Return the folder of the rivals' programs that a host lacks; it has all their libraries."""
    what = "guestfs-tools, and lsof for Salt 3006, unpacked"
    return layers.add("bench-tools", _UNPACK, roots.base("bookworm"), what)[0] / "opt/tools"


def build():
    """Make sure of the rivals; return ``{name of its folder on the host: folder here}``."""
    return {"tools": tools(), "salt-3006": pythons.rival()}


class Host:
    """The measured host: what it is given, and how long commands take there."""

    salt_call = ("salt-call", "--local", "--out=quiet")
    rival = (
        PLACE / "salt-3006/bin/python3",
        PLACE / "salt-3006/bin/salt-call",
        "--local",
        "-c",
        PLACE / "rival",
        "--out=quiet",
    )
    environment = (
        "env",
        "LIBGUESTFS_BACKEND=direct",
        "LIBGUESTFS_BACKEND_SETTINGS=force_tcg",
        f"PATH={PLACE}/tools/usr/bin:{PLAIN['PATH']}",
    )

    def __init__(self, lab, name, built):
        self._pid = node.pid_of(lab, name)
        self._place = node.root(lab, name) / PLACE.relative_to("/")
        self.clear()
        (self._place / "rival").mkdir(parents=True)
        (self._place / "rival/minion").write_text(_RIVAL)
        for script in HERE.glob("*.py"):
            self._copy(script, script.name)
        for image in IMAGES:
            self._copy(lab.images / f"{image}.qcow2", f"{image}.qcow2")
        for folder, source in built.items():
            self._copy(source, folder)

    def give(self, name, text):
        """Write a file of the host's own folder for this."""
        path = self._place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def _copy(self, source, name):
        run(["cp", "-a", source, self._place / name])

    def clear(self):
        """Remove all that the host was given."""
        run(["rm", "-rf", self._place])

    def run(self, *argv):
        """Run a command in the host and return its output."""
        return node.inside(self._pid, argv)

    def timed(self, *commands):
        """Return the median wall times of commands in seconds; they take turns."""
        times = []
        for _ in range(ROUNDS):
            for argv in commands:
                begin = time.monotonic()
                self.run(*argv)
                times.append(time.monotonic() - begin)
        return [statistics.median(times[n :: len(commands)]) for n in range(len(commands))]

    def measured(self, script, *words):
        """Run one of our own measuring scripts with the minion's Python; return its figures."""
        said = self.run(PYTHON, PLACE / script, *words)
        return json.loads(said.strip().splitlines()[-1])
