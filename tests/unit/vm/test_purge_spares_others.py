"""A purge leaves what another VM, another host or an operator needs."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import sharing, trash
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.vm.purge.host import purge

UUID = "4dea22b3-1d52-d8f3-2516-782e98ab3fa0"
VM = """<domain type='test'><name>{}</name><uuid>{}</uuid><memory>65536</memory>
<os><type>hvm</type></os><devices><disk type='file' device='disk'>
<driver name='qemu' type='{}'/><source file='{}'/><target dev='vdb' bus='virtio'/>{}</disk>
</devices></domain>"""


@pytest.fixture
def conn(hypervisor):
    """A connection to the host's libvirt."""
    with hypervisor.libvirt() as opened:
        yield opened


@pytest.fixture
def cluster_disk(hypervisor, conn):
    """The disk on shared storage of two VMs, of which this host has the first."""
    shared = hypervisor.root / "shared"
    shared.mkdir()
    hypervisor.settings = replace(hypervisor.settings, shared_paths=[str(shared)])
    disk = shared / "cluster.raw"
    disk.write_bytes(b"data of db1 and db2" * 1000)
    lifecycle.define(conn, VM.format("db1", UUID, "raw", disk, "<shareable/>"))
    return disk


def test_a_host_alone_purges_no_vm_with_a_disk_on_shared_storage(hypervisor, conn, cluster_disk):
    with pytest.raises(sharing.AskAll, match="ask all hosts: salt-run virt.purge db1") as raised:
        purge.purge(conn, hypervisor.settings, "db1", uuid=UUID)

    assert raised.value.paths == [str(cluster_disk)]
    assert cluster_disk.exists() and lifecycle.is_defined(conn, "db1")
    assert hypervisor.open_records() == []


def test_a_disk_that_a_vm_of_another_host_has_too_stays(hypervisor, conn, cluster_disk):
    used = OtherHostsUsage(used={str(cluster_disk): "hyper2: VM 'db2' has it as a disk"})

    purge.purge(conn, hypervisor.settings, "db1", uuid=UUID, elsewhere=used)

    assert cluster_disk.exists() and not lifecycle.is_defined(conn, "db1")


def test_a_disk_that_no_other_host_needs_goes(hypervisor, conn, cluster_disk):
    free = OtherHostsUsage(free=frozenset([str(cluster_disk)]))

    purge.purge(conn, hypervisor.settings, "db1", uuid=UUID, elsewhere=free)

    assert not cluster_disk.exists()
    assert trash.list_entries(hypervisor.settings) == {}


def test_a_disk_that_another_host_is_in_doubt_about_goes_into_the_trash(
    hypervisor, conn, cluster_disk
):
    doubts = OtherHostsUsage(doubts={str(cluster_disk): "hyper2 cannot be asked"})

    purge.purge(conn, hypervisor.settings, "db1", uuid=UUID, elsewhere=doubts)

    (entry,) = trash.list_entries(hypervisor.settings).values()
    assert entry["files"] == [str(cluster_disk)]
    (record,) = trash.read_entries(hypervisor.settings)
    assert record.facts["days"] == trash.LEAST_DAYS
    trash.restore(hypervisor.settings, record.name)
    assert cluster_disk.read_bytes().startswith(b"data of db1")


def test_what_the_disk_of_an_undefined_vm_is_based_on_stays(hypervisor, conn):
    """A linked clone was undefined, which leaves its disks on purpose."""
    images = Path(hypervisor.settings.images)
    images.mkdir(parents=True)
    base, disk = images / "base1.qcow2", images / "web2.qcow2"
    create = ["qemu-img", "create", "-q", "-f", "qcow2"]
    subprocess.run([*create, base, "8M"], check=True)
    subprocess.run([*create, "-F", "qcow2", "-b", base, disk], check=True)
    for number, (name, path) in enumerate((("base1", base), ("web2", disk))):
        lifecycle.define(conn, VM.format(name, f"{UUID[:-1]}{number}", "qcow2", path, ""))

    purge.undefine(conn, hypervisor.settings, "web2")
    purge.purge(conn, hypervisor.settings, "base1")

    subprocess.run(["qemu-img", "check", "-q", disk], check=True)
