"""What VMs have used, as Salt 3006.25 returned it (salt/modules/virt.py 5818-6040)."""

import faces
import pytest
from saltvirt.core.errors import BadArgument, LibvirtRefused, NoSuchVm
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import counters, lifecycle

NET = ["rx_bytes", "rx_packets", "rx_errs", "rx_drop", "tx_bytes", "tx_packets", "tx_errs"]
SHAPES = {
    "vm_cputime": ["cputime", "cputime_percent"],
    "vm_netstats": [*NET, "tx_drop"],
    "vm_diskstats": ["rd_req", "rd_bytes", "wr_req", "wr_bytes", "errs"],
}


@pytest.fixture
def conn():
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False) as conn:
        yield conn


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("vm", [None, "test"])
def test_a_vm_that_runs_has_figures(name, vm):
    answer = getattr(faces.load("modules", "virt_stats"), name)(vm)

    assert {vm: list(row) for vm, row in answer.items()} == {"test": SHAPES[name]}
    # libvirt's test host derives them from the clock: none of them is 0.
    assert all(isinstance(number, int) and number > 0 for number in answer["test"].values())


def test_a_vm_that_is_off_has_used_nothing_and_has_no_disks_to_ask(conn):
    lifecycle.destroy(conn, "test")

    assert counters.network(conn)["test"] == dict.fromkeys(SHAPES["vm_netstats"], 0)
    assert counters.disk(conn) == {}
    with pytest.raises(LibvirtRefused, match="not running"):
        counters.disk(conn, "test")


@pytest.mark.parametrize("name", SHAPES)
def test_a_missing_vm_and_an_unknown_keyword_are_refused(name):
    function = getattr(faces.load("modules", "virt_stats"), name)

    with pytest.raises(NoSuchVm, match="'nobody'"):
        function("nobody")
    with pytest.raises(BadArgument, match="no argument 'conection'"):
        function(conection="test:///default")


class BulkDomain:
    """A domain of QEMU's driver, the only driver with statistics in bulk."""

    def name(self):
        return "web"

    def isActive(self):  # noqa: N802
        return 1


class Qemu:
    """A connection with the answer of QEMU's driver for a VM with two NICs and a disk."""

    def getInfo(self):  # noqa: N802
        return ["x86_64", 1, 4]

    def getAllDomainStats(self, _kinds, _flags):  # noqa: N802
        nics = {f"net.{n}.rx.bytes": 100 for n in (0, 1)} | {"net.1.tx.pkts": 7}
        disks = {"block.count": 1, "block.0.rd.reqs": 3, "block.0.wr.bytes": 512}
        cpu = {"cpu.time": 8_000_000_000, "vcpu.current": 2}
        return [(BulkDomain(), {"net.count": 2, **nics, **disks, **cpu})]


def test_bulk_statistics_are_summed_up_without_a_call_per_device():
    conn = Qemu()

    zeros = dict.fromkeys(SHAPES["vm_netstats"], 0)
    assert counters.network(conn) == {"web": {**zeros, "rx_bytes": 200, "tx_packets": 7}}
    zeros = dict.fromkeys(SHAPES["vm_diskstats"], 0)
    assert counters.disk(conn) == {"web": {**zeros, "rd_req": 3, "wr_bytes": 512}}
    assert counters.cputime(conn) == {"web": {"cputime": 8_000_000_000, "cputime_percent": 100}}
