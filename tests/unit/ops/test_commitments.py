"""What VMs take of their host: as they run, and as they are started next."""

import subprocess

import pytest
from saltvirt import stocks
from saltvirt.config import HostSettings
from saltvirt.kvm import connect, query
from saltvirt.ops import commitments
from saltvirt.units import MIB
from saltvirt.xml import parse

DOMAIN = """<domain type='qemu'><name>web1</name><uuid>3b0fa14e-4b6a-4f0e-9d3c-8b6a0f2d7c11</uuid>
<memory unit='MiB'>{mib}</memory><vcpu>{vcpus}</vcpu>{pages}
<os><type>hvm</type></os><devices>{disks}</devices></domain>"""
PAGES = "<memoryBacking><hugepages><page size='2048' unit='KiB'/></hugepages></memoryBacking>"


def _root(folder, *, mib=256, vcpus=1, pages="", disks=()):
    sources = "".join(
        f"<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>"
        f"<source file='{folder}/{disk}'/><target dev='vd{letter}'/></disk>"
        for disk, letter in zip(disks, "abc", strict=False)
    )
    return parse(DOMAIN.format(mib=mib, vcpus=vcpus, pages=pages, disks=sources))


@pytest.fixture
def taken(tmp_path, monkeypatch):
    """What is taken by a VM of two definitions; libvirt's test driver shows one."""

    def of(root, next_root):
        one = query.Definition("web1", "running" if next_root is not None else "shutdown", root)
        two = query.Definition(one.name, one.state, root, next_root)
        monkeypatch.setattr(
            query, "definitions", lambda _conn, *, with_next=False: [two if with_next else one]
        )
        settings = HostSettings(uri="test:///default", images=str(tmp_path))
        with connect.opened(settings) as conn:
            return commitments.of(conn, settings)

    return of


@pytest.mark.parametrize(
    ("now", "then", "most"),
    [
        ({"mib": 256, "vcpus": 2}, {"mib": 1024, "vcpus": 4}, (4, 1024)),
        ({"mib": 1024, "vcpus": 4}, {"mib": 256, "vcpus": 2}, (4, 1024)),
        ({"mib": 256, "vcpus": 4}, {"mib": 1024, "vcpus": 2}, (4, 1024)),
    ],
)
def test_what_a_vm_is_started_with_next_counts_where_it_is_more(taken, tmp_path, now, then, most):
    one = taken(_root(tmp_path, **now), _root(tmp_path, **then)).vms["web1"]

    assert (one.vcpus, one.memory_mib) == most


def test_a_stopped_vm_counts_as_it_is_defined(taken, tmp_path):
    one = taken(_root(tmp_path, mib=512, vcpus=3), None).vms["web1"]

    assert (one.state, one.vcpus, one.memory_mib) == ("shutdown", 3, 512)


def test_so_do_huge_pages_and_each_disk_once(taken, tmp_path):
    for name in ("a", "b"):
        argv = ["qemu-img", "create", "-q", "-f", "qcow2", tmp_path / name, "64M"]
        subprocess.run(argv, check=True)
    now = _root(tmp_path, mib=256, pages=PAGES, disks=["a"])
    then = _root(tmp_path, mib=512, pages=PAGES, disks=["a", "b"])

    found = taken(now, then)

    assert found.promises["virtual"] == 2 * 64 * MIB
    assert found.taken.mib[stocks.pages(2048)] == 512
    without = taken(now, _root(tmp_path, mib=512))
    assert without.taken.mib[stocks.pages(2048)] == 256
