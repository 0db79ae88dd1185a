"""Many VMs by one command: what is planned is built, whatever fails, and nothing is left behind."""

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import SHORT, swarm_of
from swarmkit import conf, life
from swarmkit.settings import Spec
from test_load import IMAGE, IMAGES, files_of, keys, records, there

MEMORY_MIB = 32
# A host that builds nothing: before libvirt is asked, or when it starts the VM.
UPSET = "injected: the host is upset"


@dataclass(frozen=True)
class Cloud:
    """So many hosts that have room for so many VMs together, and no more."""

    hosts: int
    count: int

    @property
    def room_mib(self):
        """The memory of each host."""
        return self.count // self.hosts * MEMORY_MIB + MEMORY_MIB // 2

    @property
    def few(self):
        """A number of VMs for which there is always room."""
        return max(self.count // 6, 12)


CLOUDS = [
    pytest.param(Cloud(hosts=4, count=24), id="small"),
    pytest.param(Cloud(hosts=8, count=160), id="whole", marks=pytest.mark.nightly),
]


@pytest.fixture(scope="module", params=CLOUDS)
def many(request):
    """Hosts without VMs, and what they have room for."""
    spec = Spec(hosts=request.param.hosts, vms=0, memory_mib=request.param.room_mib, options=SHORT)
    with swarm_of(spec, "m") as it:
        it.sh('mkdir -p "$1"; qemu-img create -q -f qcow2 "$1/a.qcow2" 64M', IMAGES)
        it.cloud = request.param
        yield it


def deploy(swarm, *options, pattern="vm-{:03}", count=None):
    """Run virt.init_many for data."""
    count = swarm.cloud.count if count is None else count
    return swarm.run("virt.init_many", *words(pattern, count), *options)


def words(pattern="vm-{:03}", count=1):
    """Return the arguments of a call."""
    return (
        pattern,
        count,
        1,
        MEMORY_MIB,
        IMAGE,
        "seed_method=nocloud",
        "wait=False",
        "headroom=False",
    )


def nothing_is_wrong(swarm, names):
    """Assert that these VMs are there, once each, whole, with room for them, and no more."""
    domains = there(swarm)
    found = [name for vms in domains.values() for name in vms]
    assert sorted(found) == sorted(names)
    for host, vms in domains.items():
        assert len(vms) * MEMORY_MIB <= swarm.cloud.room_mib, f"{host} has too many: {len(vms)}"
        assert files_of(swarm, host) == {
            f"{name}_{part}" for name in vms for part in ("system.qcow2", "seed.iso.qcow2")
        }
    assert keys(swarm) == set(names)
    assert records(swarm) == []


def interrupt(process):
    """Send a Ctrl-C to the salt-run that a process has begun, not to what brought it inside."""
    pid, children = process.pid, str(process.pid)
    while children:
        pid = int(children.split()[0])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()
    os.kill(pid, signal.SIGINT)


def orchestrated(swarm, pattern, count, memory_mib):
    """Return what the step of an orchestration says that runs virt.init_many."""
    arg = [pattern, count, 1, memory_mib, IMAGE]
    kwarg = {"seed_method": "nocloud", "wait": False}
    step = {"many": {"salt.runner": [{"name": "virt.init_many"}, {"arg": arg}, {"kwarg": kwarg}]}}
    life.write(swarm.place, conf.MASTER / "srv/many.sls", json.dumps(step))
    data = swarm.run("state.orch", "many").data["data"]
    (states,) = data.values()
    (one,) = states.values()
    return one["result"]


def test_all_or_nothing_leaves_nothing(many):
    with many.failing({"host": "h0003", "fun": "virt.init", "libvirt": {"create": UPSET}}):
        done = deploy(many, "all_or_nothing=True", count=many.cloud.few)

    assert done.code == 1
    assert "purged again" in done.data["error"]
    assert done.data["built"] == {}
    assert "left" not in done.data
    nothing_is_wrong(many, [])


def test_an_interrupted_call_is_gone_on_with(many):
    # Else it may be over before it hears of that.
    with many.failing({"fun": "virt.init", "slow_s": 1}):
        process = many.begin("virt.init_many", *words(count=many.cloud.few), "max_parallel=2")
        while not keys(many):
            time.sleep(0.1)
        interrupt(process)
        ended = many.end(process)

    assert ended.code == 1, ended.out
    assert "the command was interrupted" in ended.data["error"]
    assert 0 < len(ended.data["built"]) < many.cloud.few, ended.out
    nothing_is_wrong(many, ended.data["built"])
    done = deploy(many, count=many.cloud.few)
    assert done.code == 0
    assert done.data["exists"] == ended.data["built"]
    # A success and a failure are so for an orchestration too.
    assert orchestrated(many, "vm-{:03}", many.cloud.few, memory_mib=MEMORY_MIB) is True
    assert orchestrated(many, "vm-{:03}", many.cloud.few, memory_mib=2 * MEMORY_MIB) is False
    nothing_is_wrong(many, [f"vm-{n:03}" for n in range(1, many.cloud.few + 1)])


def test_a_host_that_fails_builds_costs_its_own_and_the_next_call_builds_these(many):
    names = {f"vm-{n:03}" for n in range(1, many.cloud.count + 1)}
    with many.failing({"host": "h0003", "fun": "virt.init", "error": UPSET, "chance": 0.8}):
        done = deploy(many)
    data = done.data
    assert done.code == 1, done.out
    assert UPSET in data["error"]
    assert "run it again" in data["error"]
    assert {*data["built"], *data["exists"], *data["failed"]} == names
    nothing_is_wrong(many, {*data["built"], *data["exists"]})

    plan = deploy(many, "dry_run=True").data["plan"]
    assert {*plan} == {*data["failed"]}
    assert set(plan.values()) == {"h0003"}
    again = deploy(many)
    assert again.code == 0, again.out
    assert again.data["built"] == plan
    nothing_is_wrong(many, names)
    # There is no more room, and it is one line.
    more = deploy(many, pattern="more-{}", count=2)
    assert more.code == 1
    assert "2 of 2 VMs not built: more-1, more-2" in more.data["error"]
    nothing_is_wrong(many, names)
