"""Bare hosts become hypervisors for real, with nothing kept: packages from a mirror, and sid."""

import os
import subprocess

import pytest
from cloudkit import LAB, TINY, Cloud, ticks, wait
from labkit.settings import LABS, Lab

pytestmark = pytest.mark.nightly


@pytest.fixture
def fresh(request):
    """A lab of its own, made with these words; taken down again."""
    root = LABS / "fresh"
    environment = dict(os.environ, SALTVIRT_LAB_ROOT=str(root))
    words = ["up", "--fresh", "--images", "tiny", *request.param]
    try:
        up = subprocess.run(
            [LAB, *words], env=environment, capture_output=True, text=True, check=False
        )
        assert up.returncode == 0, up.stderr
        yield Cloud(Lab(root=root, salt="3008"))
    finally:
        subprocess.run([LAB, "down"], env=environment, check=True)


def deploy(cloud):
    """Deploy a tiny VM on hyper1, and wait until it counts."""
    done = cloud.run("virt.init", "f1", "1", "96", TINY, "host=hyper1", "wait=False", "seed=False")
    assert done.code == 0, done.out
    wait("the guest's counter", lambda: ticks(cloud, "hyper1", "f1") > 2)


@pytest.mark.parametrize("fresh", [["--hosts", "3"]], indirect=True)
def test_three_bare_hosts_move_a_vm_among_each_other_at_once(fresh):
    deploy(fresh)

    for target in ("hyper2", "hyper3", "hyper1"):
        done = fresh.run("virt.migrate", "f1", target)
        assert done.code == 0, done.out
        count = ticks(fresh, target, "f1")
        wait("the counter", lambda count=count, host=target: ticks(fresh, host, "f1") > count)


@pytest.mark.parametrize("fresh", [["--hosts", "1", "--release", "sid"]], indirect=True)
def test_a_host_of_debian_sid_runs_a_vm(fresh):
    deploy(fresh)

    assert fresh.run("virt.purge", "f1").code == 0
