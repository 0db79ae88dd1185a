"""
A stopped VM with 1 GiB of data, which is pushed for seconds: what happens to it meanwhile.

Another master's runner is one with a folder of records and hints of its own: nothing that it could
know of the first runner's doing but what the hosts say.
"""

import time

import faultkit as kit
import pytest
from cloudkit import wait
from faultkit import VM

nightly = pytest.mark.nightly
DATA = kit.DATA.lstrip("/")
# Another master's configuration: the same hosts, another memory.
OTHER = """set -e
cp -a /etc/salt /etc/salt-other; cp -a /var/cache/salt/master /var/cache/salt/other
rm -r /var/cache/salt/other/salt-virt
cat >/etc/salt-other/master.d/zz-other.conf <<'X'
cachedir: /var/cache/salt/other
pki_dir: /etc/salt/pki/master
X
"""


@pytest.fixture
def big(cloud3):
    """A stopped VM with 1 GiB of data on hyper1."""
    it = kit.Subject(cloud3, "stopped", size_mib=1024)
    it.make()
    yield it
    assert cloud3.run("virt.purge", VM).code == 0
    cloud3.purge_all()


def pushing(big, target, *words):
    """Begin a move, and return it in the middle of its push."""
    cloud = big.cloud
    job = cloud.begin("virt.migrate", VM, target, *words)
    path = cloud.folder(target) / DATA

    def is_half_there():
        assert job.poll() is None, job.communicate()
        return path.exists() and path.stat().st_blocks * 512 > 32 * 2**20

    wait("the push", is_half_there)
    return job


def arrives(big, target):
    """Have the VM moved by the same command again, and check that it is there, whole."""
    done = big.cloud.run("virt.migrate", VM, target)
    assert done.code == 0 or f"is on {target} already" in done.error, done.out
    kit.holds(big.cloud, big, was_cut=False)
    assert big.host == target


@nightly
def test_a_runner_killed_in_mid_push_and_run_again_three_times_to_and_fro(big):
    # There and back, three times.
    for _ in range(6):
        target = big.other
        job = pushing(big, target)
        kit.give_up(big.cloud, f"virt.migrate {VM}")
        big.cloud.end(job)

        arrives(big, target)


@nightly
def test_a_source_whose_minion_stands_still_for_a_minute(big):
    job = pushing(big, "hyper2")
    assert big.cloud.signal("hyper1", "salt-minion", "STOP")
    time.sleep(60)
    assert big.cloud.signal("hyper1", "salt-minion", "CONT")
    done = big.cloud.end(job, 400)
    if done.code:
        ends = (f"salt-run virt.settle {VM}", f"VM {VM!r} is on hyper1 as before")
        assert any(one in done.error for one in ends), done.error
    big.cloud.revive("hyper1")

    if done.code == 0:
        kit.holds(big.cloud, big, was_cut=False)
        assert big.host == "hyper2"
    else:
        arrives(big, "hyper2")


@nightly
def test_a_vm_that_is_started_during_the_push_stays_and_runs(big):
    job = pushing(big, "hyper2")
    assert big.cloud.local("hyper1", "virt.start", VM) is True

    done = big.cloud.end(job)

    assert done.code == 1 and VM in done.error, done.out
    seen = kit.look(big.cloud)
    assert kit.having(seen) == ["hyper1"] and seen["hyper1"]["states"][VM] == "running"
    assert (seen["hyper2"]["files"], seen["hyper2"]["strays"]) == ([], [])
    assert seen["hyper1"]["sums"]["m1_data.raw"] == big.sums["m1_data.raw"]
    assert seen["hyper1"]["strays"] == [] and kit.no_orders(big.cloud) == []


@nightly
def test_two_masters_runners_at_once(big):
    cloud = big.cloud
    cloud.sh("master", OTHER)
    try:
        first = pushing(big, "hyper2")
        second = cloud.run("-c", "/etc/salt-other", "virt.migrate", VM, "hyper3")
        done = cloud.end(first)

        assert done.code == 0, done.out
        assert second.code == 1 and VM in second.error, second.out
        kit.holds(cloud, big, was_cut=False)
        assert big.host == "hyper2"

        job = pushing(big, "hyper1")
        settled = cloud.run("-c", "/etc/salt-other", "virt.settle")
        done = cloud.end(job)
        assert settled.code == 0 or VM in settled.error, settled.out
        assert done.code == 0, done.out
        kit.holds(cloud, big, was_cut=False)
        assert big.host == "hyper1"
    finally:
        cloud.sh("master", "rm -rf /etc/salt-other /var/cache/salt/other")


@nightly
def test_two_masters_runners_of_which_one_dies(big):
    cloud = big.cloud
    cloud.sh("master", OTHER)
    try:
        job = pushing(big, "hyper2")
        kit.give_up(cloud, f"virt.migrate {VM}")
        cloud.end(job)

        # It knows of no order, and settles what the hosts say; the first one's is forgotten then.
        settled = cloud.run("-c", "/etc/salt-other", "virt.settle")
        assert settled.code == 0, settled.out
        assert cloud.run("virt.settle").code == 0

        kit.holds(cloud, big, was_cut=False)
        kit.says_true(cloud, settled.out, big.host)
    finally:
        cloud.sh("master", "rm -rf /etc/salt-other /var/cache/salt/other")


AGE = """import json, pathlib, sys
for path in pathlib.Path(sys.argv[1]).glob("*/*.json"):
    content = json.loads(path.read_text())
    content["since"] -= 3 * 3600
    path.write_text(json.dumps(content))
"""
# Where each of those has its records who note the move: the master its order.
RECORDS = {
    "hyper1": "/var/lib/salt-virt/records",
    "hyper2": "/var/lib/salt-virt/records",
    "master": "/var/cache/salt/master/salt-virt/records",
}


@nightly
def test_a_move_that_is_hours_old_is_not_taken_for_a_dead_one(big):
    # No node can set the clock: the records are made older instead. That nothing but their text
    # reads it is what tests/unit/core/test_core_clock.py is about.
    cloud = big.cloud
    job = pushing(big, "hyper2", "limit_s=7200")
    for node, records in RECORDS.items():
        cloud.sh(node, f"python3 - {records} <<'X'\n{AGE}\nX")

    info = cloud.run("virt.host_info", "hyper2")
    other = cloud.local("hyper2", "virt.init", "t2", "1", "64", "seed=False", "start=False")
    done = cloud.end(job)

    assert info.code == 0 and other is True
    assert done.code == 0, done.out
    assert cloud.local("hyper2", "virt.purge", "t2") is True
    kit.holds(cloud, big, was_cut=False)
    assert big.host == "hyper2"
