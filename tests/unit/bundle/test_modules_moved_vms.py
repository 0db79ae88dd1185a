"""What is asked of the host that a VM has moved to, before anything of it is removed."""

import pytest
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import lifecycle, migrate

UUID = "4dea22b3-1d52-d8f3-2516-782e98ab3fa0"
DISK = """<disk type='file' device='{device}'><source file='/srv/{target}'/>
<target dev='{target}' bus='scsi'/></disk>"""
VM = f"""<domain type='test'><name>m1</name><uuid>{UUID}</uuid><memory>1024</memory>
<os><type arch='i686' machine='pc'>hvm</type></os><devices>
{DISK.format(device="disk", target="sda")}{DISK.format(device="cdrom", target="sdb")}
</devices></domain>"""


@pytest.fixture
def other():
    """The other host's libvirt, which has a VM by then."""
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False) as conn:
        lifecycle.create_transient(conn, VM)
        yield conn
        lifecycle.destroy(conn, "m1")


def missing(other, *, is_kept=False, sizes=None, uuid=UUID, snapshots=()):
    """Return what is missing there."""
    return list(
        migrate.find_missing_on_target(
            other,
            uuid,
            must_be_persistent=is_kept,
            handed_over_sizes=sizes or {},
            snapshots=snapshots,
        )
    )


def test_a_vm_that_is_not_there_is_missing(other):
    assert missing(other, uuid=UUID.replace("4", "5")) == ["it is not defined there"]


def test_a_vm_that_is_gone_when_it_stops_is_not_all_there_unless_it_was_to_be_so(other):
    (why,) = missing(other, is_kept=True)

    assert why.startswith("it runs there, but its definition was not kept")
    assert missing(other, is_kept=False) == []


def test_a_disk_is_as_big_there_as_it_was_or_bigger(other):
    known = migrate.sizes(other, "m1")
    assert list(known) == ["sda"], "the medium there may be another"

    (why,) = missing(other, sizes={"sda": known["sda"] + 1})

    assert why == f"its disk /srv/sda has {known['sda']} bytes there, not {known['sda'] + 1}"
    assert missing(other, sizes=known) == missing(other, sizes={"sda": 1}) == []


def test_a_snapshot_that_it_was_not_told_of_is_missing(other):
    taken = other.lookupByName("m1").snapshotCreateXML(
        "<domainsnapshot><name>s1</name></domainsnapshot>", 0
    )

    (why,) = missing(other, snapshots=["s1", "s2"])

    assert why.startswith("libvirt on the other host has no snapshot s2")
    assert missing(other, snapshots=["s1"]) == missing(other) == []
    taken.delete(0)
