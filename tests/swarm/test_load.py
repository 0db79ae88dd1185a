"""Under load and faults the runner's answers are true or an error, and nothing is left behind."""

import contextlib
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from conftest import swarm_of
from swarmkit import conf, life
from swarmkit.settings import Spec

# A host has room for two of them.
MEMORY_MIB, ROOM_MIB = 512, 1100
IMAGE = "salt://images/a.qcow2"
IMAGES = conf.MASTER / "srv/images"
# One job of ten fails: before it begins, while libvirt defines or starts it.
FAULTS = (
    {"fun": "virt.init", "error": "injected: the host is upset", "chance": 0.04},
    {"fun": "virt.init", "libvirt": {"defineXML": "injected: no definition"}, "chance": 0.03},
    {"fun": "virt.init", "libvirt": {"create": "injected: no start"}, "chance": 0.04},
)


@dataclass(frozen=True)
class Load:
    """How many runners at once, how many VMs each deploys, on a swarm of how many hosts."""

    hosts: int
    runners: int
    each: int

    def names(self, runner):
        """Return the names that one runner deploys: every other is wanted by all of them."""
        return [f"vm-{'all' if n % 2 else runner}-{n}" for n in range(self.each)]


SMALL, WHOLE = Load(hosts=4, runners=8, each=2), Load(hosts=50, runners=8, each=25)


@pytest.fixture(scope="module")
def tight(request):
    """Hosts with little room and no VMs."""
    load = request.param
    with swarm_of(Spec(hosts=load.hosts, vms=0, memory_mib=ROOM_MIB), "t") as it:
        script = 'mkdir -p "$1"; qemu-img create -q -f qcow2 "$1/a.qcow2" 64M'
        it.sh(script, IMAGES)
        yield it, load


def deployed(swarm, names):
    """Deploy VMs one after another; return ``{name: how it ended}``."""
    options = ("seed_method=nocloud", "wait=False")
    return {name: swarm.run("virt.init", name, 1, MEMORY_MIB, IMAGE, *options) for name in names}


def there(swarm):
    """Return ``{host: {VM: domain}}``, as the stand-in's files have them."""
    return {host: swarm.domains(host) for host in swarm.spec.ids}


def files_of(swarm, host):
    """Return the files in a host's image folder that are a VM's."""
    script = 'cd "$1"; find . -maxdepth 1 -type f -name "vm-*"'
    return {one.removeprefix("./") for one in swarm.sh(script, conf.HOSTS / host / "img").split()}


def keys(swarm):
    """Return the ids whose keys are accepted, the hosts' left out."""
    found = swarm.sh('ls "$1"', conf.MASTER / "pki/minions").split()
    return set(found) - set(swarm.spec.ids)


def records(swarm):
    """Return the records that are open, of master and hosts."""
    script = """
    find "$1"/cache/salt-virt/records -type f -name "*.json" 2>/dev/null || true
    find "$2"/*/state/records -type f -name "*.json" 2>/dev/null || true
    """
    return swarm.sh(script, conf.MASTER, conf.HOSTS).split()


def nothing_is_wrong(swarm, ended):
    """Assert the laws of deployments; ``ended`` has ``(name, how it ended)``."""
    domains = there(swarm)
    where = [(name, host) for host, vms in domains.items() for name in vms]
    names = [name for name, _host in where]
    assert sorted(names) == sorted(set(names)), "a name is there twice"
    for host, vms in domains.items():
        assert len(vms) * MEMORY_MIB <= ROOM_MIB, f"{host} has too many: {sorted(vms)}"
        disks = {f"{name}_{part}" for name in vms for part in ("system.qcow2", "seed.iso.qcow2")}
        assert files_of(swarm, host) == disks
    good = [(name, done) for name, done in ended if done.code == 0]
    assert sorted(name for name, _done in good) == sorted(names)
    for name, done in good:
        assert domains[done.data["host"]][name]["live"], f"{name} does not run"
    for name, done in ended:
        assert done.code == 0 or done.data.get("error"), f"{name}: {done.out}{done.err}"
        assert "saltvirt/" not in done.err, done.err
    assert keys(swarm) == set(names)
    assert records(swarm) == []


@pytest.mark.parametrize(
    "tight",
    [
        pytest.param(SMALL, id="small"),
        pytest.param(WHOLE, id="whole", marks=pytest.mark.nightly),
    ],
    indirect=True,
)
def test_many_runners_at_once_overcommit_nothing_and_leave_nothing(tight):
    swarm, load = tight
    with swarm.failing(*FAULTS), ThreadPoolExecutor(load.runners) as pool:
        found = list(pool.map(lambda n: deployed(swarm, load.names(n)), range(load.runners)))
    ended = [pair for one in found for pair in one.items()]

    nothing_is_wrong(swarm, ended)
    # The room was worth fighting for: what failed has its reason.
    good = [name for name, done in ended if done.code == 0]
    assert len(good) >= load.hosts
    assert len(good) < len(ended)


def named(data):
    """Return ``{host: names}`` of what virt.list said, without what stands beside the answers."""
    beside = ("unreachable", "failed", "duplicates", "last_seen")
    return {
        host: {one for names in by.values() for one in names}
        for host, by in data.items()
        if host not in beside
    }


class Asking:
    """Whoever asks virt.list again and again, and what was answered."""

    def __init__(self, swarm):
        self._swarm, self._end = swarm, threading.Event()
        self.answers = []
        self._thread = threading.Thread(target=self._ask)

    def _ask(self):
        while not self._end.is_set():
            self.answers.append(self._swarm.run("virt.list"))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_raised):
        self._end.set()
        self._thread.join()


def never_wrong(swarm, answers):
    """Assert that each answer is an error, or true of each host that it names."""
    truth = {host: set(vms) for host, vms in there(swarm).items()}
    assert answers
    for done in answers:
        if done.code != 0:
            assert "Traceback" not in done.out, done.out
            continue
        said = named(done.data)
        silent = set(done.data.get("unreachable", ())) | set(done.data.get("failed", ()))
        assert said == {host: truth[host] for host in said}
        seen_before = {host: set(names) for host, names in done.data.get("last_seen", {}).items()}
        assert set(seen_before) <= silent
        assert seen_before == {host: truth[host] for host in seen_before}
        assert set(said) | silent == set(truth), "a host is neither there nor said to be missing"


def test_while_the_master_is_restarted_no_answer_is_wrong(swarm):
    with Asking(swarm) as asking:
        life.signal_from(swarm.place, conf.MASTER / "pid", "TERM")
        time.sleep(5)
    swarm.wait_for(swarm.spec.ids, limit_s=120)

    never_wrong(swarm, [*asking.answers, swarm.run("virt.list")])


def test_while_half_the_hosts_are_restarted_no_answer_is_wrong(swarm):
    half = swarm.spec.ids[::2]
    with Asking(swarm) as asking:
        for host in half:
            life.signal_from(swarm.place, conf.HOSTS / host / "pid", "KILL")
        time.sleep(3)
    swarm.wait_for(swarm.spec.ids, limit_s=120)

    never_wrong(swarm, [*asking.answers, swarm.run("virt.list")])


_FLOOD = """
import sys, time
import salt.config, salt.utils.event
opts = salt.config.client_config("/run/swarm/master/etc/master")
end = time.monotonic() + float(sys.argv[1])
with salt.utils.event.get_event("master", opts=opts, listen=False) as bus:
    while time.monotonic() < end:
        for number in range(200):
            jid = f"2026010100000000{number:04d}"
            bus.fire_event({"id": "h0001", "jid": jid, "return": True}, f"salt/job/{jid}/ret/h0001")
        time.sleep(0.02)
"""


@contextlib.contextmanager
def flooded(swarm, seconds):
    """Have the bus full of other jobs' answers, and hosts asked by others, for some seconds."""
    python = swarm.spec.python
    argv = life.inside(swarm.place, [python, "-c", _FLOOD, seconds])
    with subprocess.Popen(argv) as flood:
        pings = [swarm.begin("salt.execute", "*", "test.ping") for _ in range(3)]
        yield
        for one in pings:
            swarm.end(one)
        flood.wait()


def test_on_a_flooded_bus_answers_are_whole(swarm):
    with flooded(swarm, 6):
        done = swarm.run("virt.list")

    assert done.code == 0, done.out + done.err
    assert "unreachable" not in done.data
    never_wrong(swarm, [done])
