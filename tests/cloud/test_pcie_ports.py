"""Devices come to a running q35 VM: it has ports, or gets them at its next start."""

import pytest
from cloudkit import TINY


@pytest.fixture
def q35(cloud3):
    """A running VM with PCIe on hyper1."""
    cloud3.purge_all()
    done = cloud3.run(
        "virt.init", "m1", "1", "96", TINY, "seed=False", "host=hyper1", "machine=q35"
    )
    assert done.code == 0, done.out
    yield cloud3
    cloud3.purge_all()


def disks(count):
    """Return the disks of a call: the system's, and more."""
    more = ", ".join(f"{{name: d{number}, size: 16}}" for number in range(count))
    return f"disks=[{{name: system}}, {more}]"


def test_eight_disks_come_while_it_runs(q35):
    done = q35.local("hyper1", "virt.update", "m1", disks(8))

    assert len(done["disk"]["attached"]) == 8
    assert not {"errors", "restart"} & set(done), done


def test_a_vm_without_ports_gets_its_disks_at_the_next_start(q35):
    # As releases before this one defined it.
    q35.sh(
        "hyper1",
        "virsh -q destroy m1; virsh -q dumpxml --inactive m1 >/run/m1.xml; "
        "sed -i -e '/<controller/,/<.controller>/d' -e '/<address type=.pci/d' /run/m1.xml; "
        "virsh -q define /run/m1.xml; rm /run/m1.xml; virsh -q start m1",
    )

    done = q35.local("hyper1", "virt.update", "m1", disks(3))

    assert done["restart"] == ["disks"] and "errors" not in done, done
    q35.sh("hyper1", "virsh -q destroy m1; virsh -q start m1")
    assert "vdd" in q35.sh("hyper1", "virsh -q domblklist m1")
