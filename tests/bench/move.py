"""One running VM from host to host: virsh by hand, this runner, Salt 3006.25's module."""

import re
import statistics
import subprocess
import time

from labkit import node
from labkit.run import LabError
from labkit.settings import CHECKOUT

ROUNDS = 5
DISK = "/srv/salt-images/m1_system.qcow2"
BY_HAND = ["virsh", "-q", "migrate", "m1", "--live", "--p2p", "--tls", "--persistent",
           "--migrate-disks", "vda", "--migrateuri", "tcp://hyper2",
           "--desturi", "qemu+tls://hyper2/system"]  # fmt: skip
IMAGE = "salt://images/tiny.qcow2"
INIT = ["virt.init", "m1", "1", "96", IMAGE, "host=hyper1", "wait=False",
        "seed=False"]  # fmt: skip


class Bench:
    """The lab's hosts and commands."""

    def __init__(self, lab, rival):
        self.lab, self.pids = lab, node.alive(lab)
        self._rival = rival

    def sh(self, host, *argv):
        """Run a command in a host and return its output."""
        return node.inside(self.pids[host], [str(word) for word in argv])

    def runner(self, *words):
        """Run salt-run on the master."""
        argv = [self.lab.venv / "bin/salt-run", "-c", self.lab.master_conf, "--out=json", *words]
        return self.sh("master", *argv)

    def rival(self, *words):
        """Run Salt 3006.25's salt-call on hyper1."""
        return self.sh("hyper1", *self._rival, *words)

    def fresh(self):
        """Have the VM on hyper1 and nothing of it on hyper2."""
        for host in ("hyper1", "hyper2"):
            self.sh(host, "sh", "-c", "virsh -q destroy m1; virsh -q undefine m1; "
                    f"rm -f {DISK} /var/log/libvirt/qemu/m1-console.log")  # fmt: skip
        self.runner(*INIT)
        time.sleep(5)

    def make_disk(self, *backing):
        """Make the empty disk on hyper2, as one does by hand."""
        base = self.sh("hyper1", "sh", "-c", "ls /srv/salt-images/base/*.qcow2").split()[0]
        below = ["-F", "qcow2", "-b", base] if backing else []
        size = self.sh("hyper1", "sh", "-c", f"qemu-img info -U {DISK} | grep virtual")
        size = re.search(r"\((\d+) bytes", size).group(1)
        self.sh("hyper2", "qemu-img", "create", "-q", "-f", "qcow2", *below, DISK, size)


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


def rows(lab, rival):
    """Yield the rows of the table."""
    bench = Bench(lab, rival)
    for host in ("hyper1", "hyper2"):
        bench.sh(host, *[lab.venv / "bin/salt-call", "-c", lab.minion_conf(host), "--out=quiet"],
                 "state.single", "virt.keys", "keys")  # fmt: skip
        command = [str(CHECKOUT / "tests/lab/lab"), "--salt", lab.salt, "service", host, "libvirtd"]
        subprocess.run([*command, "stop"], check=True)
        subprocess.run([*command, "start"], check=True)
    bench.runner("virt.image_pull", IMAGE)
    begin = time.monotonic()
    bench.runner("test.arg")
    bare = time.monotonic() - begin
    hand = None
    for name, way, less in (("virsh, overlay", by_hand, 0), ("virsh, whole disk", by_hand_whole, 0),
                            ("salt-run virt.migrate", ours, bare),
                            ("3006.25 module", theirs, 0)):  # fmt: skip
        try:
            took, downtime, memory, disk = measured(bench, way)
        except LabError as error:  # a rival that cannot do it is a figure too
            yield (name, "cannot", str(error).splitlines()[-1][:40], "", "", "")
            continue
        hand = hand or took
        yield (name, f"{took - less:.2f} s", f"{(took - less) / hand:.2f} x", f"{downtime} ms",
               f"{memory:.0f} MiB", f"{disk:.1f} MiB")  # fmt: skip
    bench.fresh()
    bench.runner("virt.purge", "m1")


HEADS = ("one running VM, 96 MiB", "time", "", "downtime", "memory", "disk")
TITLE = f"a move, median of {ROUNDS}; of the runner its bare start is subtracted"
