"""Snapshots on Debian 13: internal ones are reverted to, external ones are their owner's alone."""

import pytest
from cloudkit import TINY, ticks, wait

DISK = "/srv/salt-images/m1_system"


@pytest.fixture
def snapped(cloud3):
    """A running VM with a seed on hyper3, whose libvirt is 11.3."""
    cloud3.purge_all()
    done = cloud3.run("virt.init", "m1", "1", "96", TINY, "host=hyper3", "wait=False")
    assert done.code == 0, done.out
    wait("the guest's counter", lambda: ticks(cloud3, "hyper3", "m1") > 2)
    yield cloud3
    # With its snapshots, which purge_all does not know.
    cloud3.run("virt.purge", "m1")
    cloud3.purge_all()


def test_debian_13_goes_back_to_internal_snapshots(snapped):
    # libvirt's news of 11.4 say that 11.3 cannot.
    snapped.local("hyper3", "virt.snapshot", "m1", "running")
    at = ticks(snapped, "hyper3", "m1")
    wait("more of the counter", lambda: ticks(snapped, "hyper3", "m1") > at + 10)

    assert snapped.local("hyper3", "virt.revert_snapshot", "m1", "running")["reverted"] == "running"

    wait("the counter, from there on", lambda: at - 2 <= ticks(snapped, "hyper3", "m1") < at + 10)
    snapped.local("hyper3", "virt.stop", "m1")
    snapped.local("hyper3", "virt.snapshot", "m1", "stopped")
    snapped.local("hyper3", "virt.revert_snapshot", "m1", "stopped")
    snapped.local("hyper3", "virt.start", "m1")
    snapped.local("hyper3", "virt.delete_snapshots", "m1", "all=True")


def test_files_of_external_snapshots_are_private(snapped):
    made = []
    for name, before in (("live", "true"), ("stopped", "virsh -q destroy m1")):
        snapped.sh("hyper3", before)
        snapped.local("hyper3", "virt.snapshot", "m1", name, "external=True")
        made.append(f"{DISK}.{name}")
    modes = snapped.sh("hyper3", f"stat -c %a {' '.join(made)}").split()
    assert modes == ["600", "600"]

    # One that is open to all, as an older libvirt leaves it, is named.
    snapped.sh("hyper3", f"chmod 644 {made[-1]}")
    named = [one for one in snapped.run("virt.audit").data["findings"] if "disk" in one["check"]]
    assert [(one["check"], one["where"]) for one in named] == [("disk-files", "hyper3")]
    assert made[-1] in named[0]["what"]
