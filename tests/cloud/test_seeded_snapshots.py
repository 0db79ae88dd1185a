"""A VM with a seed has internal snapshots, running and stopped."""

import pytest
from cloudkit import TINY, how_to, scripts, ticks, wait
from movekit import move, where

pytestmark = pytest.mark.second

FOLDER = "/srv/salt-images"
SEED = f"{FOLDER}/m1_seed.iso.qcow2"


@pytest.fixture
def seeded(cloud3):
    """A running VM with a seed, on hyper1; its guest has no cloud-init, so its key stays there."""
    cloud3.purge_all()
    before = cloud3.traces()
    done = cloud3.run("virt.init", "m1", "1", "96", TINY, "host=hyper1", "wait=False")
    assert done.code == 0, done.out
    wait("the guest's counter", lambda: ticks(cloud3, "hyper1", "m1") > 2)
    yield cloud3
    purged = cloud3.run("virt.purge", "m1")
    try:
        assert purged.code == 0, purged.out
        assert cloud3.traces() == before
        for host in cloud3.hosts:
            assert "m1_" not in cloud3.sh(host, f"ls {FOLDER}")
    finally:
        cloud3.purge_all()


@pytest.mark.nightly
def test_it_goes_back_to_what_it_was_in_memory_and_on_its_disks(seeded):
    assert seeded.local("hyper1", "virt.snapshot", "m1", "running") == {"name": "running"}
    at = ticks(seeded, "hyper1", "m1")
    wait("more of the counter", lambda: ticks(seeded, "hyper1", "m1") > at + 20)

    said = seeded.local("hyper1", "virt.revert_snapshot", "m1", "running")

    assert said["reverted"] == "running"
    wait("the counter, from there on", lambda: at - 2 <= ticks(seeded, "hyper1", "m1") < at + 20)
    seeded.local("hyper1", "virt.stop", "m1")
    seeded.local("hyper1", "virt.snapshot", "m1", "stopped")
    seeded.local("hyper1", "virt.start", "m1")
    refused = seeded.run("virt.migrate", "m1", "hyper2")
    assert "it has snapshots, which libvirt does not move while a VM runs" in refused.error
    seeded.local("hyper1", "virt.revert_snapshot", "m1", "stopped")
    assert where(seeded) == {"hyper1": "shut off"}

    move(seeded, "hyper2")

    listed = seeded.local("hyper2", "virt.list_snapshots", "m1")["m1"]
    assert [one["name"] for one in listed] == ["running", "stopped"]
    seeded.local("hyper2", "virt.revert_snapshot", "m1", "running")
    wait("the counter there", lambda: at - 2 <= ticks(seeded, "hyper2", "m1"))
    seeded.local("hyper2", "virt.delete_snapshots", "m1", "all=True")
    move(seeded, "hyper1")
    seeded.sh("hyper1", f"qemu-img check -U -q {SEED}")


def test_the_page_on_snapshots_is_followed(seeded):
    taken, _uefi, by_hand = scripts("snapshots.md", web1="m1")
    for program, *words in how_to("snapshots.md", web1="m1")[: len(taken.splitlines())]:
        done = seeded.command(program, *words)
        assert done.code == 0, done.out + done.err
    assert seeded.local("hyper1", "virt.list_snapshots", "m1") == {"m1": "N/A"}

    seeded.local("hyper1", "virt.snapshot", "m1", "before-update", "external=True")
    seeded.sh("hyper1", "virsh domblklist m1 | grep -c before-update | grep -x 2")
    refused = seeded.call("hyper1", "virt.revert_snapshot", "m1", "before-update")
    assert "is external, and this host's libvirt 9.0 cannot revert to it" in refused.err
    at = ticks(seeded, "hyper1", "m1")
    seeded.sh("hyper1", f"set -e\n{by_hand}")
    seeded.sh("hyper1", f"rm {FOLDER}/m1_*.before-update; qemu-img check -U -q {SEED}")

    wait("more of the counter", lambda: ticks(seeded, "hyper1", "m1") > at + 5)
    assert seeded.local("hyper1", "virt.list_snapshots", "m1") == {"m1": "N/A"}
    move(seeded, "hyper2")
