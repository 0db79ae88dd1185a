"""``virt.init_many all_or_nothing=True`` takes back what it made, and leaves what was there."""

import pytest
from conftest import SHORT, swarm_of
from swarmkit.settings import Spec
from test_load import IMAGE, IMAGES, there

GIVEN = ("seed=False", "start=False", "wait=False", "headroom=False", "host=h0000")


@pytest.fixture(scope="module")
def two():
    with swarm_of(Spec(hosts=2, vms=0, memory_mib=2048, options=SHORT), "whole") as swarm:
        swarm.sh('mkdir -p "$1"; qemu-img create -q -f qcow2 "$1/a.qcow2" 64M', IMAGES)
        yield swarm


def test_disks_that_were_there_before_the_call_stay(two):
    for name in ("db-001", "db-003"):
        done = two.run("virt.init", name, 1, 32, IMAGE, *GIVEN)
        assert done.code == 0, done.out + done.err
    disk = two.sh('find /run/swarm -name "db-001_system.qcow2" | head -1').strip()
    for name in ("db-001", "db-003"):
        assert two.salt("h0000", "virt.undefine", name).data == {"h0000": True}
    content = two.sh('sha256sum "$1"', disk)
    two.sh('printf damaged >"$(dirname "$1")/db-003_system.qcow2"', disk)

    # db-001 is built over its disk, db-002 gets a new one, the disk of db-003 is damaged.
    done = two.run(
        "virt.init_many",
        "db-{:03}",
        3,
        1,
        32,
        IMAGE,
        *GIVEN,
        "all_or_nothing=True",
        "max_parallel=1",
    )

    assert done.code == 1, done.out + done.err
    assert there(two) == {"h0000": {}, "h0001": {}}
    left = two.sh('ls "$(dirname "$1")"', disk).split()
    assert {"db-001_system.qcow2", "db-003_system.qcow2"} <= {*left}
    assert "db-002_system.qcow2" not in left
    assert two.sh('sha256sum "$1"', disk) == content
