"""What a host says of its VMs for a list, and of one VM in full, on libvirt's own test driver."""

import time

import pytest
from saltvirt.core import vmfilter
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect, networks
from saltvirt.vm.create.host import apply
from saltvirt.vm.guest.host import inguest
from saltvirt.vm.show.host import details, listing
from saltvirt.xml import METADATA_NS
from saltvirt.xml.edit import readdomain

TEST = HostSettings(uri="test:///default")
NIC = (
    "<interface type='network'><mac address='52:54:00:00:00:01'/>"
    "<source network='default'/></interface>"
)
DISK = "<disk type='file'><source file='{}'/><target dev='{}' bus='virtio'/></disk>"


@pytest.fixture
def conn():
    """A connection to a libvirt that has one VM, ``test``, which runs."""
    with connect.open_connection(TEST, readonly=False) as conn:
        yield conn


def xml(name="web1", note="disk_mib='10240' created='1700000000'", cpus=2, mib=512, devices=NIC):
    """Return a domain with notes of ours."""
    group = "<v:affinity>shop</v:affinity>"
    ours = f"<metadata><v:vm xmlns:v='{METADATA_NS}' {note}>{group}</v:vm></metadata>"
    return (
        f"<domain type='test'><name>{name}</name>{ours}<memory unit='MiB'>{mib}</memory>"
        f"<vcpu>{cpus}</vcpu><os><type>hvm</type></os><devices>{devices}</devices></domain>"
    )


def listed(conn, **given):
    """Return the rows of a call."""
    return listing.rows(conn, vmfilter.from_call(**given))


def test_a_row_has_the_sizes_the_lease_and_the_time_of_the_build(conn, monkeypatch):
    # The test driver's networks have no leases.
    lease = {"mac": "52:54:00:00:00:01", "ipaddr": "192.168.122.7"}
    monkeypatch.setattr(networks, "_leases", lambda _network: [lease])
    conn.createXML(xml())

    row = listed(conn)["web1"]

    assert (row.state, row.cpu, row.mem_mib, row.disk_mib) == ("running", 2, 512, 10240)
    assert row.created == 1700000000 and row.address == "192.168.122.7"


def test_a_row_of_a_vm_without_our_notes_has_the_sizes_of_its_files(conn, tmp_path):
    disk = tmp_path / "a.raw"
    disk.write_bytes(bytes(3 * 2**20))
    conn.defineXML(xml("a", "", devices=DISK.format(disk, "vda")))
    conn.defineXML(xml("b", "", devices=DISK.format(tmp_path / "missing", "vda")))

    rows = listed(conn)

    assert (rows["a"].disk_mib, rows["a"].created, rows["a"].address) == (3, None, None)
    assert rows["b"].disk_mib is None


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({}, {"test", "web1", "db1"}),
        ({"name": "web*"}, {"web1"}),
        ({"state": "running"}, {"test", "web1"}),
        ({"tag": "shop"}, {"web1", "db1"}),
    ],
)
def test_a_host_sends_only_the_vms_that_are_asked_for(conn, given, names):
    conn.createXML(xml())
    conn.defineXML(xml("db1"))

    assert set(listed(conn, **given)) == names


def test_leases_are_asked_once_for_a_network_not_for_each_vm(conn, monkeypatch):
    for number in range(3):
        nic = NIC.replace("00:01", f"00:0{number}")
        conn.createXML(xml(f"web{number}", devices=nic))
    asked = []
    monkeypatch.setattr(networks, "_leases", lambda network: asked.append(network) or [])

    assert len(listed(conn, name="web*")) == 3
    assert len(asked) == 1


def test_one_vm_is_shown_with_what_one_looks_for(conn):
    conn.createXML(xml())

    shown = inguest.describe_vm(conn, "web1", "hyper1")["web1"]

    assert shown["affinity"] == ["shop"] and shown["anti_affinity"] == []
    assert (shown["autostart"], shown["snapshots"], shown["hold"]) == (False, [], False)
    assert shown["created"] == 1700000000 and shown["pending"] == []
    assert "machine" in shown and "uptime_s" in shown


def test_the_uptime_counts_from_the_start_on_this_host(tmp_path, monkeypatch):
    monkeypatch.setattr(details, "_PIDS", tmp_path)
    (tmp_path / "web1.pid").write_text("17")

    assert details._read_uptime_s("web1") in (0, 1)
    assert details._read_uptime_s("other") is None


def test_what_waits_for_the_next_start_is_in_words():
    now = readdomain.domain(xml(devices=NIC + DISK.format("/a", "vda")))
    following = readdomain.domain(xml(cpus=4, mib=1024, devices=DISK.format("/b", "vdb")))

    assert [*details.list_pending(now, following)] == [
        "4 CPUs",
        "1024 MiB of memory",
        "disk vdb",
        "no disk vda",
        "no NIC 52:54:00:00:00:01",
    ]
    assert [*details.list_pending(now, now)] == []


def test_a_build_notes_when_it_was(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1800000000.5)

    noted = readdomain.domain(apply._note_creation(xml(note="")))

    assert readdomain.notes(noted).created == 1800000000
    foreign = "<domain type='test'><name>a</name></domain>"
    assert readdomain.notes(readdomain.domain(apply._note_creation(foreign))).created is None
