"""
What the tests of the fault matrix have in common: a VM ``m1``, who dies where, and what must hold.

What must hold is read from the hosts themselves: virsh, files, records. None of it asks our code.
"""

import json
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, field

from cloudkit import TINY, wait

VM = "m1"
PAIR = ("hyper1", "hyper2")
FAULTS = "/run/salt-virt-faults"
DATA = "/srv/salt-images/m1_data.raw"
OWN = ["m1_data.raw", "m1_seed.iso.qcow2", "m1_system.qcow2"]
DISKS = "disks=[{{name: data, size: {}, format: raw}}]"
INIT = ("virt.init", VM, "1", "96", TINY, "host=hyper1", "wait=False")
# In the phases' order; what stands before a phase is when nobody has noted it yet.
BUILD = (
    *("build.before-making", "build.making", "build.before-defining", "build.defining"),
    *("build.before-complete", "build.complete", "build.end"),
)
SOURCE = (
    *("departure.before-planned", "departure.planned", "departure.before-sending"),
    *("departure.sending", "departure.before-handing", "departure.handing"),
    *("departure.before-leaving", "departure.leaving", "departure.end"),
)
TARGET = (
    *("arrival.before-preparing", "arrival.preparing", "arrival.before-ready", "arrival.ready"),
    *("arrival.before-arrived", "arrival.arrived", "arrival.end"),
)
MOVE_ORDER = ("order.before-moving", "order.moving", "order.end")
INIT_ORDER = (
    *("order.before-placing", "order.placing", "order.before-keyed", "order.keyed"),
    *("order.before-ordered", "order.ordered", "order.before-built", "order.built", "order.end"),
)

INSPECT = r"""
import glob, hashlib, json, os, re, subprocess
def virsh(*words):
    done = subprocess.run(["virsh", "-q", *words], capture_output=True, text=True, check=True)
    return done.stdout
def names(*words):
    return virsh(*words).split()
def digest(path):
    if path.endswith("_seed.iso.qcow2"):
        # What libvirt has copied has the same content in another file; half of one is as it is.
        argv = ["qemu-img", "convert", "-U", "-f", "qcow2", "-O", "raw", path, "/run/m1-seed"]
        if subprocess.run(argv, stderr=subprocess.DEVNULL).returncode == 0:
            path = "/run/m1-seed"
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
out = {"states": {}, "missing": []}
for name in names("list", "--all", "--name"):
    out["states"][name] = virsh("domstate", name).strip()
    found = re.findall(r"<source file='([^']*)'", virsh("dumpxml", "--inactive", name))
    out["missing"] += [path for path in found if not os.path.exists(path)]
out["kept"] = names("list", "--all", "--persistent", "--name")
out["autostart"] = names("list", "--all", "--autostart", "--name")
out["pools"] = [name for name in names("pool-list", "--all", "--name") if name != "default"]
walked = [os.path.join(at, name) for top in ("/srv", "/var/lib/salt-virt")
          for at, _, files in os.walk(top) for name in files]
# Leftovers of a build or a move that was cut off go into the trash.
walked = [path for path in walked
          if "/.salt-virt-trash/" not in path and "/records/trash/" not in path]
base = "/srv/salt-images/base/"
notes = ("/var/lib/salt-virt/orders/", "/var/lib/salt-virt/moved/")
own = [path for path in walked if os.path.basename(path).startswith("m1_")]
out["files"] = sorted(os.path.basename(path) for path in own)
skipped = ("kvm-probe.json", "claims.ended")
out["strays"] = sorted(
    path for path in walked
    if path not in own and os.path.basename(path) not in skipped and not path.startswith(notes)
    and not (path.startswith(base) and not path.endswith(".part"))
)
out["sums"] = {os.path.basename(path): digest(path) for path in own}
out["logs"] = glob.glob("/var/log/libvirt/qemu/m1-console.log*")
pids = subprocess.run(["pgrep", "-f", "[g]uest=m1"], capture_output=True, text=True).stdout
out["qemu"] = len(pids.split())
print(json.dumps(out))
"""


def look(cloud, hosts=None):
    """Return ``{host: what is there}``."""
    script = f"python3 - <<'X'\n{INSPECT}\nX"
    return {host: json.loads(cloud.sh(host, script)) for host in hosts or cloud.hosts}


def having(seen):
    """Return the hosts where the VM is defined."""
    return [host for host, here in seen.items() if VM in here["states"]]


@dataclass
class Subject:
    """The VM that is moved to and fro, as it was before the first fault."""

    cloud: object
    kind: str
    host: str = PAIR[0]
    size_mib: int = 8
    sums: dict = field(default_factory=dict)
    digests: set = field(default_factory=set)
    begin: dict = field(default_factory=dict)
    count: int = 0
    is_good: bool = True

    @property
    def other(self):
        """The host that it is sent to."""
        return PAIR[1] if self.host == PAIR[0] else PAIR[0]

    @property
    def is_live(self):
        """Whether it runs."""
        return self.kind == "live"

    def make(self):
        """Make the VM, with data on its second disk."""
        cloud = self.cloud
        cloud.purge_all()
        done = cloud.run(*INIT, DISKS.format(self.size_mib), "start=False")
        assert done.code == 0, done.out + done.err
        fill = f"dd if=/dev/urandom of={DATA} bs=1M count={self.size_mib} conv=notrunc,fsync"
        cloud.sh(self.host, fill)
        if self.is_live:
            cloud.local(self.host, "virt.set_autostart", VM, "on")
            self.start()
        self.sums = look(cloud, [self.host])[self.host]["sums"]

    def start(self):
        """Start the VM by our own command, and wait until its guest counts."""
        begin = len(self.cloud.console(self.host, VM))
        assert self.cloud.local(self.host, "virt.start", VM) is True
        self.begins_anew(begin)

    def begins_anew(self, begin=0):
        """Wait until the guest, whose QEMU was started here, counts behind this place."""
        # Its file is made anew if the power went before it had synced what says that it is there.
        self.digests, self.begin = set(), {self.host: begin}
        self.counts_on(-1)

    def counts_on(self, count):
        """Wait until the guest counts above a number, and reads what it has written."""
        wait("the guest's counter", lambda: self._last() > count, timeout_s=60)
        self.count = self._last()
        self.digests.update(re.findall(r"SUM ([0-9a-f]{32})\b", self._said()))
        assert len(self.digests) <= 1, f"the guest reads from its disk: {self.digests}"

    def _said(self):
        return self.cloud.console(self.host, VM)[self.begin.get(self.host, 0) :]

    def _last(self):
        found = re.findall(r"TICK (\d+) ", self._said())
        return int(found[-1]) if found else -1


def tell(cloud, host, point, action):
    """Have the jobs of a host stop at a point."""
    cloud.sh(host, f"rm -f {FAULTS}*; echo '{point} {action}' >{FAULTS}")


def release(cloud, host):
    """Let a job that waits go on, if it is still there."""
    cloud.sh(host, f"rm -f {FAULTS}*")


def reached(cloud, host, point, job):
    """Wait until a job is at its point; a command that ends before that has not come there."""
    mark = cloud.folder(host) / f"{FAULTS}.reached".lstrip("/")

    def is_there():
        if mark.exists():
            return True
        assert job.poll() is None, f"{point} was never reached: {job.communicate()}"
        return False

    wait(point, is_there, timeout_s=60)


def die(cloud, who, host, words):
    """Have somebody die at once; the host is its own, or that of libvirtd or QEMU."""
    if who == "runner":
        cloud.interrupt(words, "KILL")
    elif who == "libvirtd":
        cloud.sh(host, "kill -9 $(pidof libvirtd)")
    elif who == "qemu":
        cloud.sh(host, "kill -9 $(pgrep -f '[g]uest=m1')")
    elif who == "crash":
        cloud.crash(host)
    elif who == "reboot":
        cloud.reboot(host)
    else:
        assert who == "job", who
        # It has marked its point a moment before it ends.
        time.sleep(0.3)


def give_up(cloud, words):
    """Kill a salt-run if it is still there, as somebody does who does not wait."""
    pattern = f"^/opt/saltstack/salt/bin/python3 /usr/bin/salt-run .*{words}"
    cloud.sh("master", f"pkill -KILL -f '{pattern}' || true")


def recover(cloud, who, host):
    """Bring up again what has died."""
    if who == "libvirtd":
        cloud.service(host, "libvirtd", "start")
    if who == "reboot":
        cloud.sh(host, "systemctl is-system-running --wait >/dev/null || true")
    if who in ("crash", "reboot"):
        cloud.sh(host, "until virsh -q list --all >/dev/null 2>&1; do sleep 0.2; done")


def at_most_one_runs(seen):
    """Check that no two hosts run the VM."""
    running = [host for host, here in seen.items() if here["states"].get(VM) == "running"]
    assert len(running) <= 1, running


def holds(cloud, subject, *, was_cut):
    """
    Check all that must hold when a move is over, wherever the VM is.

    was_cut
        Whether its QEMU or the host has died: a running VM may be off then.
    """
    seen = look(cloud)
    homes = having(seen)
    assert len(homes) == 1, f"it is defined on {homes}: {seen}"
    home, here = homes[0], seen[homes[0]]
    assert here["kept"] == [VM] and here["missing"] == [] and here["files"] == OWN, here
    assert here["qemu"] == (here["states"][VM] == "running"), here
    if not subject.is_live:
        assert here["states"][VM] == "shut off", here
        assert here["sums"] == subject.sums
    elif not was_cut:
        assert here["states"][VM] == "running", here
    assert here["sums"]["m1_data.raw"] == subject.sums["m1_data.raw"]
    assert here["sums"]["m1_seed.iso.qcow2"] == subject.sums["m1_seed.iso.qcow2"]
    assert here["autostart"] == ([VM] if subject.is_live else []), here
    for host, there in seen.items():
        assert (there["strays"], there["pools"]) == ([], []), f"{host}: {there}"
        if host != home:
            rest = (there["files"], there["logs"], there["qemu"], there["autostart"])
            assert rest == ([], [], 0, []), f"{host}: {there}"
    assert no_orders(cloud) == []
    assert cloud.accepted() == [VM]
    if subject.host != home:
        subject.begin = {}
    subject.host = home
    return here["states"][VM]


def no_orders(cloud):
    """Return the orders that the master has on record."""
    return [str(path) for path in cloud.orders()]


def says_true(cloud, said, seen_home):
    """Check that no text says that the VM is where it is not."""
    for host in cloud.hosts:
        for claim in (f"has moved to {host}", f"stays on {host}", f'"to": "{host}"'):
            assert claim not in said or host == seen_home, f"{seen_home}: {said}"


@contextmanager
def told(cloud, hosts):
    """Have the minions of hosts look where their jobs are to stop, until the end."""
    try:
        for host in hosts:
            _unit_told(cloud, host, True)
        cloud.ready(hosts)
        yield cloud
    finally:
        for host in hosts:
            _unit_told(cloud, host, False)
        cloud.ready(hosts)


def _unit_told(cloud, host, is_told):
    """Have a host's minion look where its jobs are to stop, or not any more."""
    folder = "/etc/systemd/system/salt-minion.service.d"
    # A minion of 3006 that is stopped waits for its jobs, and so for what waits at a point.
    unit = f"[Service]\\nEnvironment=SALTVIRT_FAULTS={FAULTS}\\nTimeoutStopSec=10\\n"
    change = (
        f"mkdir -p {folder}; printf '{unit}' >{folder}/faults.conf"
        if is_told
        else f"rm -f {folder}/faults.conf {FAULTS}*"
    )
    # Told to end, a minion of 3008 that does nothing takes seven seconds.
    ended = "systemctl kill -s KILL --kill-who=all salt-minion || true"
    cloud.sh(host, f"{change}; systemctl daemon-reload; sync; {ended}")
    cloud.service(host, "salt-minion", "restart")
