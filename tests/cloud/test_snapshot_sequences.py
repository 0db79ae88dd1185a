"""No internal or external snapshot of a VM is spoilt when another one goes."""

import pytest

pytestmark = pytest.mark.second_nightly

HOST, VM = "hyper3", "m9"


@pytest.fixture
def vm(cloud3):
    """A VM that is off, on a host whose libvirt goes back to external snapshots."""
    cloud3.purge_all()
    given = ("disk=null", "disks=[{name: data, size: 8}]", "seed=False", "start=False")
    done = cloud3.run("virt.init", VM, "1", "96", f"host={HOST}", "wait=False", *given)
    assert done.code == 0, done.out
    yield Snapshots(cloud3)
    cloud3.purge_all()


class Snapshots:
    """The snapshots of a VM, and what its disk has in its first bytes."""

    def __init__(self, cloud):
        self.cloud = cloud

    @property
    def disk(self):
        """The file in which the VM's disk is now."""
        return self.cloud.sh(HOST, f"virsh -q domblklist {VM}").split()[-1]

    def write(self, number):
        """Write a number into the disk."""
        self.cloud.sh(HOST, f"qemu-io -f qcow2 -c 'write -P {number} 0 64k' {self.disk}")

    def holds(self, number):
        """Return whether the disk has a number."""
        read = f"qemu-io -f qcow2 -c 'read -P {number} 0 64k' {self.disk}"
        return "verification failed" not in self.cloud.sh(HOST, f"{read} 2>&1 || true")

    def take(self, name, **given):
        """Take a snapshot."""
        more = [f"{key}={value}" for key, value in given.items()]
        self.cloud.local(HOST, "virt.snapshot", VM, name, *more)

    def refused(self, *call):
        """Return why a call was refused."""
        done = self.cloud.call(HOST, *call)
        assert done.code != 0, done.out
        return done.out + done.err


def test_the_file_that_an_internal_snapshot_is_kept_in_does_not_go(vm):
    vm.write(1)
    vm.take("e1", external=True)
    vm.write(2)
    vm.take("s2")
    vm.write(3)

    why = vm.refused("virt.delete_snapshots", VM, "e1")

    assert f"snapshot 's2' of VM '{VM}' itself is kept in it" in why
    vm.cloud.local(HOST, "virt.revert_snapshot", VM, "s2")
    assert vm.holds(2)
    vm.cloud.local(HOST, "virt.delete_snapshots", VM, "s2")
    vm.cloud.local(HOST, "virt.delete_snapshots", VM, "e1")
    assert vm.holds(2)


def test_what_an_external_snapshot_goes_back_to_is_not_written_over(vm):
    vm.write(1)
    vm.take("s1")
    vm.write(2)
    vm.take("e2", external=True)
    vm.write(3)

    why = vm.refused("virt.revert_snapshot", VM, "s1")

    assert f"snapshot 'e2' of VM '{VM}' itself goes back to it" in why
    assert vm.holds(3)
    vm.cloud.local(HOST, "virt.revert_snapshot", VM, "e2")
    assert vm.holds(2)
    # libvirt 11.3 deletes no external snapshot whose parent is an internal one.
    assert "give it up: virsh snapshot-delete" in why
    vm.cloud.sh(HOST, f"virsh -q snapshot-delete {VM} e2 --metadata")
    vm.cloud.local(HOST, "virt.revert_snapshot", VM, "s1")
    assert vm.holds(1)
