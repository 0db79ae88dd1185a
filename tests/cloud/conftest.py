"""One lab for the whole session: a real master, real minions, real libvirtd and QEMU."""

import subprocess

import pytest
from cloudkit import LAB, TINY, Cloud
from labkit import node
from labkit.settings import lab_from_environment


@pytest.fixture(scope="session")
def cloud():
    """The lab, brought up; taken down again unless it was up before."""
    lab = lab_from_environment()
    was_up = bool(node.alive(lab))
    up = subprocess.run([LAB, "--salt", lab.salt, "up", "--hosts", "3"], check=False)
    assert up.returncode == 0
    it = Cloud(lab)
    it.purge_all()
    yield it
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
