"""What VMs take of their host: as they run, and as they are started next."""

import subprocess

import pytest
from saltvirt.core.options.config import HostSettings
from saltvirt.core.units import MIB
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import query
from saltvirt.placement import resources
from saltvirt.vm.show.host import commitments

DOMAIN = """<domain type='qemu'><name>web1</name><uuid>3b0fa14e-4b6a-4f0e-9d3c-8b6a0f2d7c11</uuid>
<memory unit='MiB'>{mib}</memory><vcpu>{vcpus}</vcpu>{pages}
<os><type>hvm</type></os><devices>{disks}</devices></domain>"""
PAGES = "<memoryBacking><hugepages><page size='2048' unit='KiB'/></hugepages></memoryBacking>"


def _text(folder, *, mib=256, vcpus=1, pages="", disks=()):
    sources = "".join(
        f"<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>"
        f"<source file='{folder}/{disk}'/><target dev='vd{letter}'/></disk>"
        for disk, letter in zip(disks, "abc", strict=False)
    )
    return DOMAIN.format(mib=mib, vcpus=vcpus, pages=pages, disks=sources)


class Domain:
    """Stand for QEMU's driver, which shows both definitions: the test driver shows one."""

    def __init__(self, now, then):
        self._now, self._then = now, then

    def name(self):
        return "web1"

    def XMLDesc(self, flags):  # noqa: N802 - libvirt's name
        return self._then if flags else self._now


@pytest.fixture
def taken(tmp_path, monkeypatch):
    """What is taken by a VM that runs, if it has a second definition."""

    def of(now, then):
        running = {"state.state": 1 if then is not None else 5}

        def read_statistics(_conn, _name, _kinds, read, _flags):
            return [("web1", read(Domain(now, then), running))]

        monkeypatch.setattr(query, "read_statistics", read_statistics)
        settings = HostSettings(uri="test:///default", images=str(tmp_path))
        with connect.open_connection(settings) as conn:
            return commitments.read_commitments(conn, settings)

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
    one = taken(_text(tmp_path, **now), _text(tmp_path, **then)).vms["web1"]

    assert (one.vcpus, one.memory_mib) == most


def test_a_stopped_vm_counts_as_it_is_defined(taken, tmp_path):
    one = taken(_text(tmp_path, mib=512, vcpus=3), None).vms["web1"]

    assert (one.state, one.vcpus, one.memory_mib) == ("shutdown", 3, 512)


def test_so_do_huge_pages_and_each_disk_once(taken, tmp_path):
    for name in ("a", "b"):
        argv = ["qemu-img", "create", "-q", "-f", "qcow2", tmp_path / name, "64M"]
        subprocess.run(argv, check=True)
    now = _text(tmp_path, mib=256, pages=PAGES, disks=["a"])
    then = _text(tmp_path, mib=512, pages=PAGES, disks=["a", "b"])

    found = taken(now, then)

    assert found.promises["virtual"] == 2 * 64 * MIB
    assert found.stock_totals.mib[resources.pages(2048)] == 512
    without = taken(now, _text(tmp_path, mib=512))
    assert without.stock_totals.mib[resources.pages(2048)] == 256
