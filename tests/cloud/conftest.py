"""One lab for the whole session: a real master, real minions, real libvirtd and QEMU."""

import subprocess

import pytest
from cloudkit import LAB, TINY, Cloud, ticks, wait
from labkit import bootwatch, node, temporary
from labkit.settings import lab_from_environment


@pytest.fixture(scope="session")
def cloud():
    """The lab, brought up; taken down again unless it was up before."""
    lab = lab_from_environment()
    was_up = bool(node.alive(lab)) and not temporary.was_left(lab)
    up = [LAB, "--salt", lab.salt, "up", "--hosts", "3", "--temporary"]
    assert subprocess.run(up, check=False).returncode == 0
    if was_up:
        subprocess.run([LAB, "--salt", lab.salt, "sync"], check=True)
    it = Cloud(lab)
    it.purge_all()
    with bootwatch.watching(it):
        yield it
    it.warm.close()
    if not was_up:
        subprocess.run([LAB, "--salt", lab.salt, "down"], check=True)


@pytest.fixture
def clean(cloud):
    """The lab; whatever VMs a test leaves are an error of the test, and removed."""
    before = cloud.traces()
    yield cloud
    try:
        assert cloud.traces() == before
    finally:
        cloud.purge_all()


@pytest.fixture
def vm(cloud):
    """A running tiny guest called ``t1`` on hyper1."""
    cloud.purge_all()
    assert cloud.local("hyper1", "virt.init", "t1", "1", "96", TINY, "seed=False") is True
    yield "t1"
    cloud.purge_all()


@pytest.fixture(scope="module")
def cloud3(cloud):
    """Three hosts that let each other in, as ``lab up`` leaves them."""
    yield cloud
    cloud.purge_all()


@pytest.fixture
def m1(cloud3):
    """A running tiny guest called ``m1`` on hyper1, counting on its console; removed afterwards."""
    cloud3.purge_all()
    before = cloud3.traces()
    done = cloud3.run("virt.init", "m1", "1", "96", TINY, "host=hyper1", "wait=False", "seed=False")
    assert done.code == 0, done.out
    wait("the guest's counter", lambda: ticks(cloud3, "hyper1", "m1") > 2)
    yield "m1"
    purged = cloud3.run("virt.purge", "m1")
    try:
        assert purged.code == 0, purged.out
        assert cloud3.traces() == before
    finally:
        cloud3.purge_all()
