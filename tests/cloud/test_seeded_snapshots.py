"""A VM with a seed has internal snapshots, running and stopped; so has one of an older release."""

import pytest
from cloudkit import TINY, how_to, scripts, ticks, wait
from movekit import move, where

pytestmark = pytest.mark.second

FOLDER = "/srv/salt-images"
NEW, OLD = f"{FOLDER}/m1_seed.iso.qcow2", f"{FOLDER}/m1_seed.iso"


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
    seeded.sh("hyper1", f"qemu-img check -U -q {NEW}")


@pytest.mark.nightly
def test_a_seed_of_an_older_release_is_made_read_only_as_the_refusal_says(seeded):
    seeded.local("hyper1", "virt.stop", "m1")
    # As older releases have made it.
    seeded.sh(
        "hyper1",
        f"qemu-img convert -O raw {NEW} {OLD}; rm {NEW}; "
        "virsh -q dumpxml --inactive m1 >/run/m1.xml; "
        f"sed -i -e 's|{NEW}|{OLD}|' /run/m1.xml; "
        f"tac /run/m1.xml | sed -e \"/{OLD.rpartition('/')[2]}'/,/driver/s/qcow2/raw/\" | tac "
        ">/run/m2.xml; virsh -q define /run/m2.xml; rm /run/m1.xml /run/m2.xml",
    )
    raw = seeded.sh("hyper1", 'virsh -q dumpxml m1 | grep -B1 "_seed.iso\'"')
    assert "type='raw'" in raw, raw
    update = ["virt.update", "m1", "seed_readonly=True"]

    refused = seeded.call("hyper1", "virt.snapshot", "m1", "one")
    assert refused.code != 0 and "virt.update m1 seed_readonly=True" in refused.out + refused.err
    refused = seeded.call("hyper1", *update)
    assert "has not taken its key from its seed" in refused.out + refused.err
    seeded.sh("hyper1", f"truncate -s -64K {OLD}; truncate -s +64K {OLD}")  # as the guest wipes it
    assert any("readonly" in one for one in seeded.local("hyper1", *update, "test=True")["diff"])
    assert seeded.local("hyper1", *update)["definition"] is True

    seeded.local("hyper1", "virt.snapshot", "m1", "stopped")
    seeded.local("hyper1", "virt.start", "m1")
    wait("the guest's counter", lambda: ticks(seeded, "hyper1", "m1") > 2)
    seeded.local("hyper1", "virt.snapshot", "m1", "running")
    seeded.local("hyper1", "virt.revert_snapshot", "m1", "stopped")
    seeded.local("hyper1", "virt.delete_snapshots", "m1", "all=True")
    seeded.local("hyper1", "virt.start", "m1")
    wait("the guest's counter", lambda: ticks(seeded, "hyper1", "m1") > 2)

    move(seeded, "hyper2")

    assert OLD in seeded.sh("hyper2", f"ls {OLD}")
    assert "m1_" not in seeded.sh("hyper1", f"ls {FOLDER}")


def test_the_page_on_snapshots_is_followed(seeded):
    taken, _uefi, by_hand, _older = scripts("snapshots.md", web1="m1")
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
    seeded.sh("hyper1", f"rm {FOLDER}/m1_*.before-update; qemu-img check -U -q {NEW}")

    wait("more of the counter", lambda: ticks(seeded, "hyper1", "m1") > at + 5)
    assert seeded.local("hyper1", "virt.list_snapshots", "m1") == {"m1": "N/A"}
    move(seeded, "hyper2")
