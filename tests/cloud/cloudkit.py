"""What a user of the cloud can do, and what an inspector can see."""

import json
import re
import shlex
import subprocess
from dataclasses import dataclass

from labkit import node, saltd
from labkit.run import wait_for
from labkit.settings import CHECKOUT

LAB = CHECKOUT / "tests" / "lab" / "lab"
TINY = "salt://images/tiny.qcow2"
PURGE = """
for name in $(virsh -q list --all --name); do
    virsh -q destroy $name; virsh -q undefine $name
done >/dev/null 2>&1
rm -rf /srv/salt-images/*_* /var/log/libvirt/qemu/*console*
rm -f /var/lib/salt-virt/claims/* /var/lib/salt-virt/departures/*
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

    @property
    def pids(self):
        """The first process of each node."""
        return node.alive(self.lab)

    def _argv(self, program, words, name="master", config=None):
        argv = [self.lab.venv / "bin" / program, "-c", config or self.lab.master_conf, *words]
        return node.enter(self.pids[name], argv)

    def command(self, program, *words):
        """Run a command of the master to its end."""
        done = subprocess.run(
            self._argv(program, words), capture_output=True, text=True, check=False
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def run(self, *words):
        """Run salt-run for its data."""
        return self.command("salt-run", *words, "--out=json")

    def begin(self, *words):
        """Start a salt-run and return the process."""
        # Whoever runs the tests in the background has them ignore Ctrl-C, and all they start.
        argv = ["env", "--default-signal=INT"]
        argv += self._argv("salt-run", [*words, "--out=json"])
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self, process, timeout_s=300):
        """Wait for a salt-run that was begun."""
        out, err = process.communicate(timeout=timeout_s)
        return Done(process.returncode, out, err)

    def salt(self, target, *words):
        """Run salt for its data."""
        return self.command("salt", target, *words, "--out=json", "--static", "-t", "60")

    def call(self, host, *words):
        """Run salt-call on a host for its data; ``.data["local"]`` is the answer."""
        argv = self._argv("salt-call", [*words, "--out=json"], host, self.lab.minion_conf(host))
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

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
        """Return a node's folder on this machine."""
        return self.lab.node_dir(name)

    def accepted(self):
        """Return the accepted keys, the hosts' own left out."""
        accepted = self.lab.master_conf / "pki/master/minions"
        return sorted(p.name for p in accepted.iterdir() if p.name not in self.hosts)

    def traces(self):
        """Return everything that VMs leave: definitions, files, claims, locks, keys, journals."""
        out = {"keys": self.accepted()}
        journals = self.lab.master_conf.parent / "cache" / "salt-virt"
        out["journals"] = sorted(p.name for p in journals.glob("*")) if journals.exists() else []
        for host in self.hosts:
            folder = self.folder(host)
            files = [p for part in ("srv", "var-lib-salt-virt") for p in (folder / part).rglob("*")]
            out[host] = {
                "domains": sorted(self.sh(host, "virsh -q list --all --name").split()),
                "files": sorted(str(p.relative_to(folder)) for p in files if _is_trace(p)),
                "consoles": sorted(p.name for p in (folder / "log/libvirt/qemu").glob("*console*")),
            }
        return out

    def console(self, host, vm):
        """Return a guest's console so far."""
        path = self.folder(host) / f"log/libvirt/qemu/{vm}-console.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def forget_images(self, host):
        """Empty a host's image cache, so that the next image is fetched."""
        self.sh(host, "rm -rf /srv/salt-images/base")

    def service(self, host, name, action):
        """Start or stop a daemon of a node."""
        done = subprocess.run([LAB, "--salt", self.lab.salt, "service", host, name, action],
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr

    def let_in(self):
        """Let the hosts reach each other's libvirt, if they do not already."""
        for host in self.hosts:
            self.local(host, "state.single", "virt.keys", "keys")
        for host in self.hosts:
            if not self.sh(host, "ss -Hltn sport = :16514"):
                self.service(host, "libvirtd", "stop")
                self.service(host, "libvirtd", "start")

    def signal(self, name, program, signal):
        """Send a signal to a daemon and all its children; return their process ids."""
        listed = self.sh(name, f"ps -A -ww -o pid=,args= | grep '[b]in/{program}' || true")
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
        pattern = f"^{self.lab.venv}.*salt-run.*{words}"
        found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=True)
        for pid in found.stdout.split():
            subprocess.run(["kill", f"-{signal}", pid], check=False)

    def ready(self, hosts=None):
        """Wait until these hosts' minions answer."""
        saltd.wait_until_ready(self.lab, self.pids, hosts or self.hosts)

    def purge_all(self):
        """Remove every VM by hand, and every key but the hosts' own."""
        for host in self.hosts:
            self.sh(host, PURGE)
        for key in self.accepted():
            (self.lab.master_conf / "pki/master/minions" / key).unlink()


_KEPT = ("kvm-proof.json", "claims.ended")  # of the host, not of a VM


def _is_trace(path):
    return path.is_file() and "base" not in path.parts and path.name not in _KEPT


def how_to(page, **names):
    """Return the commands of a page of the docs in their order, as words; names are replaced."""
    blocks = re.findall(r"```sh\n(.*?)```", (CHECKOUT / "docs" / page).read_text(), re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    for old, new in names.items():
        lines = [line.replace(old, new) for line in lines]
    return [shlex.split(line, comments=True) for line in lines if line]


def wait(what, condition, timeout_s=180):
    """Wait for a condition of a test."""
    return wait_for(what, condition, timeout_s=timeout_s, every_s=0.2)


def ticks(cloud, host, name):
    """Return the last number that the tiny guest's counter has printed, 0 before the first."""
    found = re.findall(r"TICK (\d+) ", cloud.console(host, name))
    return int(found[-1]) if found else 0
