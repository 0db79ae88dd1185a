"""A stopped VM moves with its internal snapshots, and goes back to them on its new host."""

import pytest
from movekit import move, where

pytestmark = pytest.mark.second
DISK = "/srv/salt-images/m1_system.qcow2"


def write(cloud, host, text):
    """Write a text where the guest's disk has nothing."""
    at = "qemu-io -f qcow2 -c 'write -P {} 7G 64k' {} >/dev/null"
    cloud.sh(host, at.format(ord(text), DISK))


def written(cloud, host, text):
    """Return whether that text is there."""
    said = cloud.sh(host, f"qemu-io -f qcow2 -c 'read -P {ord(text)} 7G 64k' {DISK} 2>&1 || true")
    return "Pattern verification failed" not in said and "read 65536/65536" in said


@pytest.fixture
def stopped(cloud3, m1):
    """The VM is off, with two snapshots and what was written after each."""
    cloud3.sh("hyper1", "virsh -q destroy m1")
    write(cloud3, "hyper1", "a")
    cloud3.sh("hyper1", "virsh -q snapshot-create-as m1 first")
    write(cloud3, "hyper1", "b")
    cloud3.sh("hyper1", "virsh -q snapshot-create-as m1 second")
    write(cloud3, "hyper1", "c")
    return cloud3


def test_a_stopped_vm_moves_with_its_snapshots(stopped):
    before = stopped.local("hyper1", "virt.list_snapshots", "m1")

    move(stopped, "hyper2")

    assert where(stopped) == {"hyper2": "shut off"}
    assert stopped.local("hyper2", "virt.list_snapshots", "m1") == before
    assert written(stopped, "hyper2", "c")
    move(stopped, "hyper1")
    stopped.local("hyper1", "virt.revert_snapshot", "m1", "first")
    assert written(stopped, "hyper1", "a")
    assert "m1" not in stopped.sh("hyper2", "ls /srv/salt-images; virsh -q list --all --name")


@pytest.mark.nightly
def test_a_move_that_dies_while_the_other_host_is_told_of_them_loses_none(stopped):
    # libvirt there takes the VM, and cannot keep what it is told of its snapshots.
    folder = "/var/lib/libvirt/qemu/snapshot/m1"
    stopped.sh("hyper2", f"rm -rf {folder}; touch {folder}")
    try:
        done = stopped.run("virt.migrate", "m1", "hyper2")

        assert done.code != 0 and "snapshot" in done.error
    finally:
        stopped.sh("hyper2", f"rm -f {folder}")
    stopped.run("virt.settle", "m1")
    assert where(stopped) == {"hyper1": "shut off"}
    listed = stopped.local("hyper1", "virt.list_snapshots", "m1")["m1"]
    assert [one["name"] for one in listed] == ["first", "second"]
    assert "m1" not in stopped.sh("hyper2", "ls /srv/salt-images")
    move(stopped, "hyper2")


@pytest.mark.nightly
def test_one_that_runs_or_has_external_ones_is_told_why_it_stays(stopped):
    stopped.sh("hyper1", "virsh -q start m1")
    done = stopped.run("virt.migrate", "m1", "hyper2")
    assert "it has snapshots, which libvirt does not move while a VM runs; stop it" in done.error
    stopped.sh("hyper1", "virsh -q destroy m1; virsh -q snapshot-create-as m1 out --disk-only")

    done = stopped.run("virt.migrate", "m1", "hyper2")

    assert "it has external snapshots (out), which do not move" in done.error
