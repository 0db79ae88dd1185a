"""What a user of the cloud can do, and what an inspector can see."""

import json
import re
import shlex
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass

import recordedanswers
from labkit import node, saltd
from labkit.run import wait_for
from labkit.settings import CHECKOUT, LabError
from warm import PROGRAMS, Warm

LAB = CHECKOUT / "tests" / "lab" / "lab"
TINY = "salt://images/tiny.qcow2"
LIBVIRT_SOCKETS = [
    "libvirtd.socket",
    "libvirtd-ro.socket",
    "libvirtd-admin.socket",
    "libvirtd-tls.socket",
]
PURGE = """
for name in $(virsh -q list --all --name); do
    virsh -q destroy $name; virsh -q undefine $name --managed-save --snapshots-metadata --nvram
done >/dev/null 2>&1
rm -rf /srv/salt-images/*_* /srv/salt-images/.salt-virt-* /var/log/libvirt/qemu/*console*
rm -rf /var/lib/salt-virt/records
"""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def traceback(self):
        """The tracebacks that lead through our code; Salt may print some of its own at its end."""
        found = (self.out + "\n" + self.err).split("Traceback (most recent call last)")[1:]
        return [text for text in found if "saltvirt/" in text or "/extmods/" in text]

    @property
    def data(self):
        """The JSON that the command printed."""
        start = min((at for at in (self.out.find("{"), self.out.find("[")) if at >= 0), default=-1)
        assert start >= 0, f"no JSON: {self.out}{self.err}"
        return json.JSONDecoder().raw_decode(self.out[start:])[0]

    @property
    def error(self):
        """The one line of an error."""
        return self.data["error"]


class Cloud:
    """What a user of the cloud can do, and what an inspector can see."""

    def __init__(self, lab):
        self.lab = lab
        self.hosts = ["hyper1", "hyper2", "hyper3"]
        self.warm = Warm()

    @property
    def pids(self):
        """The first process of each node."""
        return node.alive(self.lab)

    @property
    def fileroot(self):
        """What the master serves beside the project, as this machine sees it."""
        return self.folder("master") / "srv/salt"

    @property
    def master_conf(self):
        """The master's configuration, as this machine sees it."""
        return self.folder("master") / "etc/salt"

    def command(self, program, *words):
        """Run a command of the master to its end."""
        done = self._command("master", program, words)
        if recordedanswers.IS_RECORDING and program == "salt-run" and "--out=json" in words:
            recordedanswers.record(words, done.out)
        return done

    def _command(self, name, program, words):
        pid = node.pid_of(self.lab, name)
        if program in PROGRAMS and (said := self.warm.run(name, pid, program, words)) is not None:
            return Done(*said)
        argv = node.enter(pid, [program, *words])
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    def run(self, *words):
        """Run salt-run for its data."""
        return self.command("salt-run", *words, "--out=json")

    def begin(self, *words):
        """Start a salt-run and return the process."""
        argv = node.enter(node.pid_of(self.lab, "master"), ["salt-run", *words, "--out=json"])
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def heard(self, tag, act, limit_s=120):
        """Return what ``state.event`` prints of the first event of a tag that an act causes."""
        # "timeout" ends what salt-run has started too; to kill nsenter would leave all of it.
        argv = ["timeout", "-k", "5", limit_s, "salt-run", "state.event", tag, "count=1"]
        entered = node.enter(node.pid_of(self.lab, "master"), argv)
        with subprocess.Popen(
            entered, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as bus:
            while bus.poll() is None:
                act()
            out = bus.stdout.read()
        assert tag in out, out
        return out

    def cut_off(self, point, *words):
        """Run salt-run until it is killed at a point of its record; return when it has been."""
        faults = self.folder("master") / "run/faults/at"
        self.sh("master", f"install -d -o salt /run/faults; echo {point} kill >/run/faults/at")
        self.sh(
            "master",
            f"SALTVIRT_FAULTS=/run/faults/at salt-run {shlex.join(words)} >/run/faults/out 2>&1; "
            "test $? = 137",
        )
        faults.with_name("at.reached").unlink()

    def end(self, process, timeout_s=300):
        """Wait for a salt-run that was begun."""
        out, err = process.communicate(timeout=timeout_s)
        return Done(process.returncode, out, err)

    def salt(self, target, *words):
        """Run salt for its data."""
        return self.command("salt", target, *words, "--out=json", "--static", "-t", "60")

    def call(self, host, *words):
        """Run salt-call on a host for its data; ``.data["local"]`` is the answer."""
        return self._command(host, "salt-call", [*words, "--out=json"])

    def local(self, host, *words):
        """Return the answer of salt-call on a host; it must succeed."""
        done = self.call(host, *words)
        assert done.code == 0, done.out + done.err
        return done.data["local"]

    def answers(self, minion):
        """Return whether a minion answers within seconds."""
        done = self.command("salt", minion, "test.ping", "-t", "3", "--out=json", "--static")
        return f'"{minion}": true' in done.out

    def sh(self, name, script):
        """Run a script in a node and return what it printed."""
        return node.inside(self.pids[name], ["sh", "-c", script])

    def folder(self, name):
        """Return a node's file system, as this machine sees it while the node is up."""
        return node.root(self.lab, name)

    @property
    def notes(self):
        """What the master notes of its VMs, as this machine sees it."""
        return self.folder("master") / "var/cache/salt/master/salt-virt"

    def accepted(self):
        """Return the accepted keys, the hosts' own left out."""
        accepted = self.master_conf / "pki/master/minions"
        return sorted(p.name for p in accepted.iterdir() if p.name not in self.hosts)

    def orders(self):
        """Return what the master has on record of VMs, except what it keeps for virt.undo."""
        of_hosts = ("hints.json", "listed.json", "silent.json")
        files = self.notes.rglob("*") if self.notes.exists() else ()
        files = [path for path in files if path.is_file() and path.parent.name != "undo"]
        return [path for path in files if path.name not in of_hosts]

    def traces(self):
        """Return everything that VMs leave: definitions, files, records, locks, keys, orders."""
        out = {"keys": self.accepted()}
        out["orders"] = sorted(path.name for path in self.orders())
        for host in self.hosts:
            folder = self.folder(host)
            logs = folder / "var/log/libvirt/qemu"
            files = [p for part in ("srv", "var/lib/salt-virt") for p in (folder / part).rglob("*")]
            out[host] = {
                "domains": sorted(self.sh(host, "virsh -q list --all --name").split()),
                "files": sorted(str(p.relative_to(folder)) for p in files if _is_trace(p)),
                "consoles": sorted(p.name for p in logs.glob("*console*")),
            }
        return out

    def console(self, host, vm):
        """Return a guest's console so far."""
        path = self.folder(host) / f"var/log/libvirt/qemu/{vm}-console.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @contextmanager
    def pillar(self, target, data):
        """Give minions more pillar while the block runs, beside what the lab's hosts have."""
        folder = self.folder("master") / "srv/pillar"
        before = (folder / "top.sls").read_text()
        top = json.loads(before)["base"] if before.startswith("{") else {}
        (folder / "added.sls").write_text(json.dumps(data))
        top = {**top, target: [*top.get(target, []), "added"]}
        (folder / "top.sls").write_text(json.dumps({"base": top}))
        self._refresh(target)
        try:
            yield
        finally:
            (folder / "top.sls").write_text(before)
            (folder / "added.sls").unlink()
            self._refresh("hyper*")

    def _refresh(self, target):
        done = self.salt(target, "saltutil.refresh_pillar", "wait=True")
        assert done.code == 0, done.out + done.err

    @contextmanager
    def lent_ca(self, host):
        """Let a host have the CA's own files while the block runs; return their folder there."""
        place = self.folder(host) / "tmp/lent-ca"
        shutil.copytree(self.master_conf / "pki/master/libvirt", place)
        try:
            yield "/tmp/lent-ca"
        finally:
            shutil.rmtree(place)

    def mount_image(self, host, image, folder):
        """Mount an image file of a host there; its nodes have no loop devices of their own."""
        argv = ["losetup", "--find", "--show", f"{self.folder(host)}{image}"]
        device = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
        number = device.removeprefix("/dev/loop")
        self.sh(host, f"mknod {device} b 7 {number}; mkdir -p {folder}; mount {device} {folder}")
        # It goes when it is unmounted.
        subprocess.run(["losetup", "--detach", device], check=True)

    def forget_images(self, host):
        """Empty a host's image cache, so that the next image is fetched."""
        self.sh(host, "rm -rf /srv/salt-images/base")

    def service(self, host, name, action):
        """Start, stop or restart a unit; libvirtd with the sockets that would start it."""
        units = [name]
        if name == "libvirtd" and action == "stop":
            units = LIBVIRT_SOCKETS + [f"{name}.service"]
        elif name == "libvirtd":
            units = [*LIBVIRT_SOCKETS, f"{name}.service"]
        self.sh(host, f"systemctl reset-failed; systemctl {action} {' '.join(units)}")

    def reboot(self, host):
        """Reboot a node as its administrator would; return when its minion answers again."""
        self.lab_command("reboot", host)
        self.ready([host])

    def crash(self, host):
        """Cut a node's power for a moment; return when its minion answers again."""
        self.lab_command("crash", host)
        self.ready([host])

    def lab_command(self, *words):
        """Run the lab's own command; it must succeed."""
        done = subprocess.run(
            [LAB, "--salt", self.lab.salt, *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def signal(self, name, program, signal):
        """Send a signal to a daemon and all its children; return their process ids."""
        listed = self.sh(name, f"ps -A -ww -o pid=,args= | grep '/usr/[b]in/{program}' || true")
        ids = [line.split()[0] for line in listed.splitlines()]
        if ids:
            self.sh(name, f"kill -{signal} {' '.join(ids)} 2>/dev/null || true")
        return ids

    def kill(self, name, program):
        """Kill a daemon and all its children, also one begun meanwhile, as a crash would."""
        assert self.signal(name, program, "KILL"), f"{program} does not run on {name}"
        wait(f"the end of {program}", lambda: not self.signal(name, program, "KILL"))

    def interrupt(self, words, signal="INT"):
        """Send a signal to the salt-run that was begun with these words."""
        self.sh(
            "master",
            f"pkill -{signal} -f '^/opt/saltstack/salt/bin/python3 "
            f"/usr/bin/salt-run .*{words}'",
        )

    def ready(self, hosts=None):
        """Wait until these hosts' minions answer."""
        saltd.wait_until_ready(self.lab, hosts or self.hosts)

    def revive(self, host):
        """Wait until a minion answers that stood still; restart it if it never would."""
        try:
            wait_for(f"an answer from {host}", lambda: saltd.answering(self.lab, [host]), 45)
        except LabError:
            # Salt 3008's authenticates twice at once if its connection is lost as it wakes, and
            # hangs ("InvalidStateError" in its log): whoever runs it restarts it.
            self.service(host, "salt-minion", "restart")
        self.ready([host])

    def purge_all(self):
        """Remove every VM by hand, and every key but the hosts' own."""
        for host in self.hosts:
            self.sh(host, PURGE)
        for key in self.accepted():
            (self.master_conf / "pki/master/minions" / key).unlink()
        for order in self.notes.glob("records/order/*"):
            order.unlink()


_KEPT = ("kvm-probe.json", "claims.ended")  # of the host, not of a VM
# Images; which orders were begun, and definitions of VMs that were moved by hand.
_KEPT_FOLDERS = {"base", "orders", "moved"}


def _is_trace(path):
    is_kept = path.name in _KEPT or not _KEPT_FOLDERS.isdisjoint(path.parts)
    return path.is_file() and not is_kept


def reach(cloud, source, target, query=""):
    """Ask a host for its name over TLS, from another; return the exit code and the text."""
    argv = ["virsh", "-q", "-c", f"qemu+tls://{target}/system{query}", "hostname"]
    entered = node.enter(cloud.pids[source], argv)
    done = subprocess.run(entered, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).strip()


def port(cloud, source, address, number):
    """Return how a connection from a node to a port ends: open, refused, rejected or silent."""
    code = f"""import socket
try:
    socket.create_connection(("{address}", {number}), timeout=10).close(); print("open")
except ConnectionRefusedError: print("refused")
except TimeoutError: print("silent")
except OSError: print("rejected")"""
    return cloud.sh(source, f"python3 -c '{code}'").strip()


def backup_folder(cloud):
    """Make the folder of docs/pki.md for a backup; return the paths of backup and passphrase."""
    cloud.sh(
        "master",
        "rm -rf /srv/backup; install -d -m 700 -o salt /srv/backup; "
        "install -m 600 -o salt /dev/stdin /srv/backup/passphrase <<X\na long passphrase\nX\n",
    )
    return "/srv/backup/ca.backup", "/srv/backup/passphrase"


def scripts(page, **names):
    """Return a page's blocks of shell, but for those that are not run; names are replaced."""
    text = (CHECKOUT / "docs" / page).read_text()
    for old, new in names.items():
        text = text.replace(old, new)
    blocks = re.findall(r"(<!-- not run: [^\n]+ -->\s*)?```sh\n(.*?)```", text, re.DOTALL)
    return [block for mark, block in blocks if not mark]


def how_to(page, **names):
    """Return the commands of these blocks in their order, as words."""
    lines = [line.strip() for block in scripts(page, **names) for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines if line]


def wait(what, condition, timeout_s=180):
    """Wait for a condition of a test."""
    return wait_for(what, condition, timeout_s=timeout_s, every_s=0.2)


def ticks(cloud, host, name):
    """Return the last number that the tiny guest's counter has printed, 0 before the first."""
    found = re.findall(r"TICK (\d+) ", cloud.console(host, name))
    return int(found[-1]) if found else 0
