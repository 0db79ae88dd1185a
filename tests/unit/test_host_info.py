"""Facts and figures of a host, from libvirt's own test driver and from real files."""

import subprocess

import pytest
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument, HostUnreachable, LibvirtRefused, NoSuchVm
from saltvirt.kvm import connect, lifecycle, query
from saltvirt.model import Need
from saltvirt.ops import claims, inspect, purge, storage
from saltvirt.xml import hostdev, read

TEST = HostSettings(uri="test:///default")


def test_a_libvirt_that_is_not_there_is_said_with_what_to_do():
    with (
        pytest.raises(HostUnreachable, match=r"does not answer at .*is libvirtd running"),
        connect.opened(HostSettings(uri="qemu+unix:///system?socket=/nowhere")),
    ):
        pass


def test_what_libvirt_refuses_comes_out_in_its_own_words():
    with (
        pytest.raises(LibvirtRefused, match="Premature end of data"),
        connect.opened(TEST, readonly=False) as conn,
    ):
        lifecycle.define(conn, "<domain>")


def test_a_vm_nobody_knows_is_named():
    with connect.opened(TEST) as conn, pytest.raises(NoSuchVm, match="no VM called 'nope'"):
        lifecycle.xml(conn, "nope")


def test_a_vm_goes_through_its_states():
    with connect.opened(TEST, readonly=False) as conn:
        assert query.names(conn) == ["test"]
        assert query.state(conn, "test") == "running"
        lifecycle.act(conn, "test", "suspend")
        assert query.state(conn, "test") == "paused"
        lifecycle.act(conn, "test", "resume")
        lifecycle.act(conn, "test", "destroy")
        assert query.state(conn, "test") == "shutdown"
        assert query.names(conn, active=False) == ["test"]
        with pytest.raises(LibvirtRefused, match="is not running; start it with virt.start"):
            lifecycle.act(conn, "test", "destroy")
        lifecycle.start(conn, "test")
        lifecycle.start(conn, "test")
        assert query.names(conn, active=True) == ["test"]


def test_memory_of_a_running_vm_is_not_changed_behind_its_back():
    with connect.opened(TEST, readonly=False) as conn:
        with pytest.raises(LibvirtRefused, match="config=True"):
            lifecycle.set_memory(conn, "test", 64, config=False)
        with pytest.raises(LibvirtRefused, match="config=True"):
            lifecycle.set_vcpus(conn, "test", 1, config=False)


@pytest.mark.parametrize("state", ["maybe", None, 2])
def test_a_state_is_on_or_off(state, tmp_path):
    with connect.opened(TEST, readonly=False) as conn, pytest.raises(BadArgument, match="state"):
        lifecycle.set_autostart(conn, "test", state)
    with pytest.raises(BadArgument, match="state"):
        purge.set_maintenance(HostSettings(state_dir=str(tmp_path)), state)


def test_the_maintenance_flag_lives_with_the_host(tmp_path):
    host = HostSettings(state_dir=str(tmp_path / "state"))

    assert inspect.in_maintenance(host) is False
    assert purge.set_maintenance(host, "on") is True
    assert inspect.in_maintenance(host) is True
    assert purge.set_maintenance(host, "off") is False
    assert inspect.in_maintenance(host) is False


def test_a_disk_is_measured_without_a_subprocess(tmp_path):
    path = tmp_path / "d.qcow2"
    subprocess.run(["qemu-img", "create", "-f", "qcow2", path, "1G"], check=True,
                   capture_output=True)  # fmt: skip

    sizes = storage.measure(path, "qcow2")

    assert sizes["virtual"] == 2**30
    assert sizes["actual"] < 2**20
    assert storage.measure(tmp_path / "missing", "qcow2") is None


def test_a_missing_disk_does_not_spoil_the_answer():
    root = read.domain(
        "<domain><devices><disk type='file' device='disk'><driver type='qcow2'/>"
        "<source file='/missing'/><target dev='vda'/></disk>"
        "<disk type='file' device='cdrom'><target dev='hda'/></disk></devices></domain>"
    )

    disks = inspect.disks(root, {})

    assert disks["vda"]["error"] == "the file is missing or cannot be read"
    assert disks["hda"] == {"file": "", "type": "cdrom", "file format": "raw"}


def test_a_base_image_and_a_shared_disk_belong_to_nobody_alone(tmp_path):
    host = HostSettings(images=str(tmp_path))
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "b.qcow2").touch()
    (tmp_path / "link.qcow2").symlink_to(tmp_path / "base" / "b.qcow2")
    (tmp_path / "own.qcow2").touch()
    (tmp_path / "shared.qcow2").touch()
    used = {str(tmp_path / "shared.qcow2")}

    kept = {
        name: purge._is_shared(host, str(tmp_path / name), used)
        for name in ("base/b.qcow2", "link.qcow2", "shared.qcow2", "own.qcow2")
    }

    assert kept == {"base/b.qcow2": True, "link.qcow2": True, "shared.qcow2": True,
                    "own.qcow2": False}  # fmt: skip


def test_a_guests_console_cannot_steer_a_terminal():
    assert inspect.printable("a\x1b[2Jb\tc\x07\x9b") == "a[2Jb\tc"


PCI = """<device><name>pci_0000_03_00_0</name><capability type='pci'><class>0x020000</class>
<domain>0</domain><bus>3</bus><slot>0</slot><function>0</function>
<product id='0x1533'>I210</product><vendor id='0x8086'>Intel</vendor></capability></device>"""
USB = """<device><name>usb_1_2</name><capability type='usb_device'><bus>1</bus><device>4</device>
<product id='0xc52b'>Receiver</product><vendor id='0x046d'/></capability></device>"""


def test_devices_have_what_passing_them_on_needs():
    pci, usb = read.device(PCI), read.device(USB)

    assert pci == {"name": "pci_0000_03_00_0", "caps": "pci", "vendor_id": "0x8086",
                   "product_id": "0x1533", "vendor": "Intel", "product": "I210",
                   "address": "0000:03:00.0", "PCI class": "0x020000"}  # fmt: skip
    assert (usb["vendor_id"], usb["product_id"], usb["address"]) == ("0x046d", "0xc52b", "1:4")
    assert hostdev.element(pci).find("source/address").get("bus") == "0x03"
    assert hostdev.element(usb).find("source/vendor").get("id") == "0x046d"


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A host on libvirt's test driver, which has no answer for some of what is asked."""
    monkeypatch.setattr(inspect, "domain_types", lambda *_: {"usable": ["test"]})
    monkeypatch.setattr(query, "node", lambda _conn: {"phymemory": 4096, "cpus": 4})
    monkeypatch.setattr(inspect.host, "free_memory_mib", lambda _conn: 4096)
    return HostSettings(uri="test:///default", state_dir=str(tmp_path), hypervisor="qemu",
                        images=str(tmp_path))  # fmt: skip


def test_a_vm_whose_building_ends_meanwhile_is_counted(bare, monkeypatch):
    need = Need(name="web1", vcpus=1, memory_mib=700)
    listed = inspect._vms
    building = claims.claimed(bare, need, lambda: None)
    building.__enter__()

    def list_and_end(conn, given):
        # Defined behind the listing's back, and its claim given up before the listing is used.
        found = listed(conn, given)
        building.__exit__(None, None, None)
        return found

    monkeypatch.setattr(inspect, "_vms", list_and_end)
    with connect.opened(bare, readonly=False) as conn:
        counted = inspect.host_info(conn, bare)["memory"]["committed_mib"]
        monkeypatch.setattr(inspect, "_vms", listed)
        without = inspect.host_info(conn, bare)["memory"]["committed_mib"]

    assert counted == without + 700


def test_domains_read_before_the_lock_are_read_again_only_if_a_claim_ended_since(bare):
    with connect.opened(bare, readonly=False) as conn:
        known = inspect.seen(conn, bare)
        vms = set(known[0])
        new = conn.defineXML("<domain type='test'><name>web1</name><memory>1024</memory>"
                             "<os><type>hvm</type></os></domain>")  # fmt: skip
        try:
            assert set(inspect.host_info(conn, bare, known)["vms"]) == vms
            with claims.claimed(bare, Need(name="web1", vcpus=1, memory_mib=1), lambda: None):
                assert set(inspect.host_info(conn, bare, known)["vms"]) == vms
            assert set(inspect.host_info(conn, bare, known)["vms"]) == {*vms, "web1"}
            known = inspect.seen(conn, bare)
            claims.drop(bare, "gone")
            new.undefine()
            assert set(inspect.host_info(conn, bare, known)["vms"]) == vms
        finally:
            if new.name() in conn.listDefinedDomains():
                new.undefine()
