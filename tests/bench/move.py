"""One running VM from host to host: virsh by hand, this runner, Salt 3006.25's module."""

import json
import re
import statistics
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

from labkit import node
from labkit.run import LabError, wait_for

ROUNDS = 5
DISK = "/srv/salt-images/m1_system.qcow2"
CONSOLE = Path("/var/log/libvirt/qemu/m1-console.log")
BY_HAND = [
    "virsh",
    "-q",
    "migrate",
    "m1",
    "--live",
    "--p2p",
    "--tls",
    "--persistent",
    "--migrate-disks",
    "vda",
    "--migrateuri",
    "tcp://hyper2",
    "--desturi",
    "qemu+tls://hyper2/system",
]
IMAGE = "salt://images/tiny.qcow2"
INIT = ["virt.init", "m1", "1", "96", IMAGE, "host=hyper1", "wait=False", "seed=False"]


class Bench:
    """The lab's hosts and commands."""

    def __init__(self, lab, host):
        self.lab, self.pids, self._rival = lab, node.alive(lab), host.rival

    def sh(self, host, *argv):
        """Run a command in a host and return its output."""
        return node.inside(self.pids[host], argv)

    def runner(self, *words):
        """Run salt-run on the master."""
        return self.sh("master", "salt-run", "--out=json", *words)

    def rival(self, *words):
        """Run Salt 3006.25's salt-call on hyper1."""
        return self.sh("hyper1", *self._rival, *words)

    def bare_start(self):
        """Return the seconds of a salt-run that does nothing."""
        begin = time.monotonic()
        self.runner("test.arg")
        return time.monotonic() - begin

    def fresh(self):
        """Have the VM on hyper1 and nothing of it on hyper2."""
        for host in ("hyper1", "hyper2"):
            self.sh(
                host,
                "sh",
                "-c",
                "virsh -q destroy m1; virsh -q undefine m1; " f"rm -f {DISK} {CONSOLE}",
            )
        self.runner(*INIT)
        # All that it writes to its disk is written.
        console = node.root(self.lab, "hyper1") / CONSOLE.relative_to("/")
        wait_for("the guest's file", lambda: "SUM" in console.read_text(errors="replace"), 180)

    def make_disk(self, *backing):
        """Make the empty disk on hyper2, as one does by hand."""
        info = json.loads(self.sh("hyper1", "qemu-img", "info", "-U", "--output=json", DISK))
        below = ["-F", "qcow2", "-b", info["full-backing-filename"]] if backing else []
        size = info["virtual-size"]
        self.sh("hyper2", "qemu-img", "create", "-q", "-f", "qcow2", *below, DISK, size)

    @contextmanager
    def in_clear_text(self):
        """Let the hosts move VMs unencrypted in the block: Salt 3006 knows no other way."""
        try:
            self._force_tls(0)
            yield
        finally:
            self._force_tls(1)

    def _force_tls(self, value):
        for host in ("hyper1", "hyper2"):
            edit = f"s/^migrate_tls_force = .*/migrate_tls_force = {value}/"
            self.sh(host, "sed", "-i", edit, "/etc/libvirt/qemu.conf")
            self.sh(host, "systemctl", "restart", "libvirtd")


def measured(bench, way):
    """Return the medians ``(seconds, downtime ms, memory MiB, disk MiB)`` of a way to move."""
    rows = []
    for _ in range(ROUNDS):
        bench.fresh()
        begin = time.monotonic()
        way(bench)
        took = time.monotonic() - begin
        rows.append((took, *_figures(bench)))
    return [statistics.median(column) for column in zip(*rows, strict=True)]


_UNITS = {"B": 1 / 2**20, "KiB": 1 / 2**10, "MiB": 1, "GiB": 2**10}


def _figures(bench):
    """Return libvirt's own figures of the last move, from the source if it still knows them."""
    for host in ("hyper1", "hyper2"):
        said = bench.sh(host, "sh", "-c", "virsh domjobinfo m1 --completed 2>/dev/null || true")
        if "downtime" in said:
            break
    downtime = int(re.search(r"Total downtime: *(\d+)", said).group(1))
    sizes = []
    for kind in ("Memory", "File"):
        found = re.search(rf"{kind} processed: *([\d.]+) (\w+)", said)
        sizes.append(float(found.group(1)) * _UNITS[found.group(2)] if found else 0.0)
    return (downtime, *sizes)


def by_hand(bench):
    """Do what an administrator does with virsh: the disk with its base, then the move."""
    bench.make_disk("with its base")
    bench.sh("hyper1", *BY_HAND, "--copy-storage-inc")


def by_hand_whole(bench):
    """Copy the whole disk with virsh."""
    bench.make_disk()
    bench.sh("hyper1", *BY_HAND, "--copy-storage-all")


def ours(bench):
    """Move with this project's runner."""
    bench.runner("virt.migrate", "m1", "hyper2", "undefinesource=False")


def theirs(bench):
    """Move with 3006.25's module, the disk made by hand; nothing is encrypted."""
    bench.make_disk("with its base")
    bench.rival("virt.migrate", "m1", "qemu+tls://hyper2/system", "copy_storage=incremental")


def rows(lab, host, found):
    """Yield the rows of the table; note our ratio in ``found``."""
    bench = Bench(lab, host)
    bench.runner("virt.image_pull", IMAGE)
    bare = statistics.median(bench.bare_start() for _ in range(ROUNDS))
    hand = None
    for name, way, less in (
        ("virsh, overlay", by_hand, 0),
        ("virsh, whole disk", by_hand_whole, 0),
        ("salt-run virt.migrate", ours, bare),
        ("3006.25 module", theirs, 0),
    ):
        try:
            with bench.in_clear_text() if way is theirs else nullcontext():
                took, downtime, memory, disk = measured(bench, way)
        except LabError as error:  # a rival that cannot do it is a figure too
            yield (name, "cannot", str(error).strip().rpartition(": ")[2][:60], "", "", "")
            continue
        hand = hand or took
        if way is ours:
            found["virt.migrate, virsh by hand"] = (took - less) / hand
        yield (
            name,
            f"{took - less:.2f} s",
            f"{(took - less) / hand:.2f} x",
            f"{downtime} ms",
            f"{memory:.0f} MiB",
            f"{disk:.1f} MiB",
        )
    bench.fresh()
    bench.runner("virt.purge", "m1")


HEADS = ("one running VM, 96 MiB", "time", "", "downtime", "memory", "disk")
TITLE = f"a move, median of {ROUNDS}; of the runner its bare start is subtracted"
