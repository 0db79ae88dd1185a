"""A VM whose post-copy is cut needs both hosts: nothing is given up that may be all of it."""

import pytest
from cloudkit import wait
from movekit import where

pytestmark = [pytest.mark.second, pytest.mark.nightly]
# So slow that it can be cut long before its end: 1 MiB/s of 96 MiB.
SLOW = ("postcopy=True", "max_bandwidth=1", "postcopy_bandwidth=1")
USERFAULTS = "/proc/sys/vm/unprivileged_userfaultfd"
STATUS = "virsh qemu-monitor-command m1 --hmp 'info migrate' 2>&1 || true"
DUMP = "virsh dumpxml --migratable --security-info m1"
END, DEFINE = "virsh destroy m1", "virsh define /run/m1.xml"


@pytest.fixture
def job(cloud3, m1):
    """A move whose guest runs on hyper2, while most of its memory is on hyper1."""
    if "1" not in cloud3.sh("hyper1", f"cat {USERFAULTS}"):
        pytest.skip("post-copy needs vm.unprivileged_userfaultfd=1 of the machine itself")
    job = cloud3.begin("virt.migrate", m1, "hyper2", *SLOW)
    wait("the move", lambda: "status: active" in cloud3.sh("hyper1", STATUS))
    cloud3.sh("hyper1", "virsh migrate-postcopy m1")
    there = "virsh domstate m1 --reason 2>&1 || true"
    wait("the guest there", lambda: "running (post-copy)" in cloud3.sh("hyper2", there))
    return job


def paused(cloud, job):
    """Cut it as a network would that resets it, by QEMU itself; return what the move says."""
    cloud.sh("hyper1", "virsh qemu-monitor-command m1 --hmp migrate_pause")
    done = cloud.end(job, 300)
    assert done.code == 1
    return done.error


def test_what_has_come_is_kept_where_its_source_has_lost_the_rest(cloud3, job):
    error = paused(cloud3, job)
    assert "it runs on hyper2, with memory that its source alone has" in error
    assert "--postcopy-resume m1 qemu+tls://hyper2/system. Nothing is lost" in error
    waits = cloud3.run("virt.settle", "m1")
    assert waits.code == 1 and "--postcopy-resume m1 qemu+tls://hyper2/system" in waits.error
    # An emulated guest that waits for its memory may hold up its QEMU, so that is not typed here.
    assert where(cloud3) == {"hyper1": "paused", "hyper2": "running"}
    cloud3.crash("hyper1")
    cloud3.ready(["hyper1"])

    lost = cloud3.run("virt.settle", "m1")

    assert lost.code == 1 and "its source has lost the memory that it alone had" in lost.error
    kept(cloud3, "hyper2", f"{END}; {DEFINE}")


def test_what_has_come_is_kept_where_the_target_has_lost_the_guest(cloud3, job):
    cloud3.crash("hyper2")
    cloud3.ready(["hyper2"])
    done = cloud3.end(job, 300)
    assert done.code == 1 and "hyper2 has lost the memory that it alone had" in done.error

    lost = cloud3.run("virt.settle", "m1")

    assert lost.code == 1 and "hyper2 has lost the memory that it alone had" in lost.error
    xml = cloud3.sh("hyper1", DUMP)
    cloud3.sh("hyper2", f"cat >/run/m1.xml <<'X'\n{xml}\nX\n{DEFINE}")
    kept(cloud3, "hyper1", END)


def kept(cloud, host, steps):
    """Do what was said on a host, and check that the VM is hyper2's then, and starts there."""
    cloud.sh(host, f"{DUMP} >/run/m1.xml; {steps}; rm -f /run/m1.xml")
    done = cloud.run("virt.settle", "m1")
    assert done.code == 0, done.out
    assert where(cloud) == {"hyper2": "shut off"}
    assert cloud.run("virt.start", "m1").code == 0
