"""Facts and figures of a host, from libvirt's own test driver and from real files."""

import subprocess
from contextlib import contextmanager
from dataclasses import replace

import onrecord
import pytest
from saltvirt.core import wire
from saltvirt.core.errors import (
    BadArgument,
    HostUnreachable,
    LibvirtRefused,
    NoSuchVm,
    ReservationRefused,
)
from saltvirt.core.journal import records
from saltvirt.core.model import Requirements
from saltvirt.core.options import config
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect, maintenance, reservations
from saltvirt.libvirt.domains import lifecycle, power, query
from saltvirt.placement import fit
from saltvirt.placement.answers import DomainTypes
from saltvirt.storage import diskpaths
from saltvirt.vm.show.host import commitments, inspect, migrationinfo
from saltvirt.xml.domain import hostdev
from saltvirt.xml.node import nodedev

TEST = HostSettings(uri="test:///default")
TYPES = DomainTypes(default="test", usable=["test"], why="")


def test_a_libvirt_that_is_not_there_is_said_with_what_to_do():
    with (
        pytest.raises(HostUnreachable, match=r"does not answer at .*is libvirtd running"),
        connect.open_connection(HostSettings(uri="qemu+unix:///system?socket=/nowhere")),
    ):
        pass


def test_what_libvirt_refuses_comes_out_in_its_own_words():
    with (
        pytest.raises(LibvirtRefused, match="Premature end of data"),
        connect.open_connection(TEST, readonly=False) as conn,
    ):
        lifecycle.define(conn, "<domain>")


def test_a_vm_nobody_knows_is_named():
    with (
        connect.open_connection(TEST) as conn,
        pytest.raises(NoSuchVm, match="'nope' on this host; .* shows those"),
    ):
        lifecycle.xml(conn, "nope")


def test_a_vm_goes_through_its_states():
    with connect.open_connection(TEST, readonly=False) as conn:
        assert query.names(conn) == ["test"]
        assert query.state(conn, "test") == "running"
        power.act(conn, "test", "suspend")
        assert query.state(conn, "test") == "paused"
        power.act(conn, "test", "resume")
        power.act(conn, "test", "destroy")
        assert query.state(conn, "test") == "shutdown"
        assert query.names(conn, active=False) == ["test"]
        with pytest.raises(LibvirtRefused, match="is not running, so there is nothing"):
            power.act(conn, "test", "destroy")
        lifecycle.start(conn, "test")
        lifecycle.start(conn, "test")
        assert query.names(conn, active=True) == ["test"]


def test_memory_of_a_running_vm_is_not_changed_behind_its_back():
    with connect.open_connection(TEST, readonly=False) as conn:
        with pytest.raises(LibvirtRefused, match="config=True"):
            lifecycle.set_memory(conn, "test", 64, config=False)
        with pytest.raises(LibvirtRefused, match="config=True"):
            lifecycle.set_vcpus(conn, "test", 1, config=False)


@pytest.mark.parametrize("state", ["maybe", None, 2])
def test_a_state_is_on_or_off(state, tmp_path):
    with (
        connect.open_connection(TEST, readonly=False) as conn,
        pytest.raises(BadArgument, match="state"),
    ):
        lifecycle.set_autostart(conn, "test", state)
    with pytest.raises(BadArgument, match="state"):
        maintenance.set_flag(HostSettings(state_dir=str(tmp_path)), state)


def test_the_maintenance_flag_lives_with_the_host(tmp_path):
    host = HostSettings(state_dir=str(tmp_path / "state"))

    assert maintenance.is_on(host) is False
    assert maintenance.set_flag(host, "on") is True
    assert maintenance.is_on(host) is True
    assert maintenance.set_flag(host, "off") is False
    assert maintenance.is_on(host) is False


def test_a_disk_is_measured_without_a_subprocess(tmp_path):
    path = tmp_path / "d.qcow2"
    subprocess.run(
        ["qemu-img", "create", "-f", "qcow2", path, "1G"], check=True, capture_output=True
    )

    sizes = diskpaths.measure(path, "qcow2")

    assert sizes["virtual"] == 2**30
    assert sizes["actual"] < 2**20
    assert diskpaths.measure(tmp_path / "missing", "qcow2") is None


@pytest.mark.parametrize("end", ["", "/"])
def test_what_a_disk_may_take_is_counted_however_its_folder_is_written(hypervisor, end):
    folder = diskpaths.make_image_folder(hypervisor.settings.images)
    subprocess.run(
        ["qemu-img", "create", "-f", "qcow2", f"{folder}/d.qcow2", "1G"],
        check=True,
        capture_output=True,
    )
    options = {"images": f"{folder}{end}", "state_dir": hypervisor.settings.state_dir}
    options |= {"capacity": {"disk_mib": 4096}, "connection": {"uri": "test:///default"}}
    with hypervisor.libvirt() as conn:
        lifecycle.define(
            conn,
            "<domain type='test'><name>web1</name><memory>1024</memory><os><type>hvm</type></os>"
            "<devices><disk type='file' device='disk'><driver type='qcow2'/>"
            f"<source file='{folder}/d.qcow2'/><target dev='vda'/></disk></devices></domain>",
        )
        found = inspect.host_info(conn, config.host_settings({"virt": options}))

    assert found.storage.committed_mib == 1024


PCI = """<device><name>pci_0000_03_00_0</name><capability type='pci'><class>0x020000</class>
<domain>0</domain><bus>3</bus><slot>0</slot><function>0</function>
<product id='0x1533'>I210</product><vendor id='0x8086'>Intel</vendor></capability></device>"""
USB = """<device><name>usb_1_2</name><capability type='usb_device'><bus>1</bus><device>4</device>
<product id='0xc52b'>Receiver</product><vendor id='0x046d'/></capability></device>"""


def test_devices_have_what_passing_them_on_needs():
    pci, usb = nodedev.read(PCI), nodedev.read(USB)

    assert pci == {
        "name": "pci_0000_03_00_0",
        "caps": "pci",
        "vendor_id": "0x8086",
        "product_id": "0x1533",
        "vendor": "Intel",
        "product": "I210",
        "address": "0000:03:00.0",
        "PCI class": "0x020000",
    }
    assert (usb["vendor_id"], usb["product_id"], usb["address"]) == ("0x046d", "0xc52b", "1:4")
    assert hostdev.from_call(pci).address["bus"] == "0x03"
    assert hostdev.from_call(usb).vendor == {"id": "0x046d"}


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A host on libvirt's test driver, which has no answer for some of what is asked."""
    monkeypatch.setattr(inspect, "domain_types", lambda *_: TYPES)
    monkeypatch.setattr(query, "node", lambda _conn: {"phymemory": 16384, "cpus": 4})
    monkeypatch.setattr(inspect.hostfacts, "free_memory_mib", lambda _conn: 16384)
    return HostSettings(
        uri="test:///default", state_dir=str(tmp_path), hypervisor="qemu", images=str(tmp_path)
    )


@contextmanager
def built(settings, required):
    """Have a build on record while the block runs."""
    with reservations.reserve(settings, required, "u1", lambda: None) as held:
        yield
        reservations.end(settings, held)


def test_a_vm_whose_building_ends_meanwhile_is_counted(bare, monkeypatch):
    required = Requirements(name="web1", vcpus=1, memory_mib=700)
    listed = commitments.read_commitments
    building = built(bare, required)
    building.__enter__()

    def list_and_end(conn, given):
        # Defined behind the listing's back, and its reservation ended before that is used.
        found = listed(conn, given)
        building.__exit__(None, None, None)
        return found

    monkeypatch.setattr(commitments, "read_commitments", list_and_end)
    with connect.open_connection(bare, readonly=False) as conn:
        counted = inspect.host_info(conn, bare).memory.committed_mib
        monkeypatch.setattr(commitments, "read_commitments", listed)
        without = inspect.host_info(conn, bare).memory.committed_mib

    assert counted == without + 700


def test_domains_read_before_the_lock_are_read_again_only_if_a_record_ended_since(bare):
    with connect.open_connection(bare, readonly=False) as conn:
        known = inspect.read_timed_commitments(conn, bare)
        vms = set(known[0].vms)
        new = conn.defineXML(
            "<domain type='test'><name>web1</name><memory>1024</memory>"
            "<os><type>hvm</type></os></domain>"
        )
        try:
            assert set(inspect.host_info(conn, bare, known).vms) == vms
            with built(bare, Requirements(name="web1", vcpus=1, memory_mib=1)):
                assert set(inspect.host_info(conn, bare, known).vms) == vms
            assert set(inspect.host_info(conn, bare, known).vms) == {*vms, "web1"}
            known = inspect.read_timed_commitments(conn, bare)
            with built(bare, Requirements(name="web2", vcpus=1, memory_mib=1)):
                pass
            new.undefine()
            assert set(inspect.host_info(conn, bare, known).vms) == vms
        finally:
            if new.name() in conn.listDefinedDomains():
                new.undefine()


def _checked(conn, settings, required):
    """Return a host's own check of a VM, as it is made before room is reserved for it."""

    def check():
        why = fit.reasons(inspect.host_info(conn, settings), required)
        if why:
            raise ReservationRefused(required.name, why)

    return check


def test_two_of_an_anti_affinity_group_are_not_built_on_one_host_at_once(bare):
    types = DomainTypes(default="qemu", usable=["qemu"], why="it is set")
    first = Requirements(name="db1", vcpus=1, memory_mib=64, anti_affinity=("db",))
    with (
        pytest.MonkeyPatch.context() as patch,
        connect.open_connection(bare, readonly=False) as conn,
    ):
        patch.setattr(inspect, "domain_types", lambda *_: types)
        with reservations.reserve(bare, first, "u1", _checked(conn, bare, first)):
            second = replace(first, name="db2")
            with (
                pytest.raises(
                    ReservationRefused, match="db1 of the anti-affinity group db is being bui"
                ),
                reservations.reserve(bare, second, "u2", _checked(conn, bare, second)),
            ):
                pytest.fail("both are built on one host")
            other = replace(first, name="web1", anti_affinity=("web",), affinity=("shop",))
            place = reservations.folder(bare)
            with records.hold_record(place, "arrival", "web1") as held:
                held.begin("t1", "preparing", **onrecord.arrival(**reservations.room(other)))
                coming = inspect.host_info(conn, bare).coming
        left = inspect.host_info(conn, bare).coming

    room = {"vcpus": 1, "memory_mib": 64, "disk_mib": 0, "stocks": {}}
    assert wire.plain(coming) == {
        "db1": {**room, "affinity": [], "anti_affinity": ["db"]},
        "web1": {**room, "affinity": ["shop"], "anti_affinity": ["web"]},
    }
    # What another host sends is awaited when the call that reserved its room is over.
    assert list(left) == ["web1"]


def test_a_host_says_the_uuids_of_its_vms(hypervisor):
    with hypervisor.libvirt() as conn:
        hypervisor.init("web1")
        uuid = lifecycle.uuid(conn, "web1")

        seen = inspect.presence(conn, hypervisor.settings, "web1")
        info = inspect.host_info(conn, hypervisor.settings)

    assert seen.uuid == info.vms["web1"].uuid == uuid


def test_a_definition_that_was_kept_is_not_a_vm_of_the_host(hypervisor):
    with hypervisor.libvirt() as conn:
        hypervisor.init("web1")
        hypervisor.init("web2")
        lifecycle.destroy(conn, "web1")
        before = inspect.host_info(conn, hypervisor.settings)
        lifecycle.mark_moved(conn, "web1", "hyper2")

        info = inspect.host_info(conn, hypervisor.settings)
        seen = inspect.presence(conn, hypervisor.settings, "web1")
        moving = migrationinfo.gather(conn, hypervisor.settings)
        (obstacle,) = migrationinfo.gather(conn, hypervisor.settings, "web1")["web1"].obstacles

    assert set(before.vms) == {"web1", "web2"} and before.kept == {}
    assert set(info.vms) == set(moving) == {"web2"} and info.kept == {"web1": "hyper2"}
    assert (seen.state, seen.moved_to) == ("shutdown", "hyper2")
    assert "has moved to hyper2, and only its definition was kept here" in obstacle


def test_what_is_no_link_is_not_taken_for_one(tmp_path, monkeypatch):
    for name in ("lo", "eno1", "vnet0", "br0/bridge"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "bonding_masters").write_text("")  # of the kernel's module for bonds
    monkeypatch.setattr(inspect, "_LINKS", tmp_path)

    assert (inspect.links(), inspect.bridges()) == (["br0", "eno1"], ["br0"])
