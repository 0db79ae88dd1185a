"""One lab for the whole session: a real master, real minions, real libvirtd and QEMU."""

import subprocess

import pytest
from cloudkit import LAB, TINY, Cloud
from labkit import bootwatch, node, temporary
from labkit.settings import lab_from_environment
from movekit import begin_m1, end_m1


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
    begin_m1(cloud3)
    yield "m1"
    end_m1(cloud3, before)
