"""What the source asks the target of a move before it removes anything of the VM."""

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
def target_conn():
    """A connection to the target, which has the VM already."""
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False) as conn:
        lifecycle.create_transient(conn, VM)
        yield conn
        lifecycle.destroy(conn, "m1")


def missing(target_conn, *, is_kept=False, sizes=None, uuid=UUID, snapshots=()):
    """Return what the target lacks of the VM."""
    return list(
        migrate.find_missing_on_target(
            target_conn,
            uuid,
            must_be_persistent=is_kept,
            handed_over_sizes=sizes or {},
            snapshots=snapshots,
        )
    )


def test_a_vm_that_is_not_there_is_missing(target_conn):
    assert missing(target_conn, uuid=UUID.replace("4", "5")) == ["it is not defined there"]


def test_a_transient_vm_is_complete_only_if_its_definition_was_not_to_be_kept(target_conn):
    (reason,) = missing(target_conn, is_kept=True)

    assert reason.startswith("it runs there, but its definition was not kept")
    assert missing(target_conn, is_kept=False) == []


def test_a_disk_is_as_big_there_as_it_was_or_bigger(target_conn):
    disk_sizes = migrate.sizes(target_conn, "m1")
    assert list(disk_sizes) == ["sda"], "the medium there may be another"

    (reason,) = missing(target_conn, sizes={"sda": disk_sizes["sda"] + 1})

    assert (
        reason
        == f"its disk /srv/sda has {disk_sizes['sda']} bytes there, not {disk_sizes['sda'] + 1}"
    )
    assert missing(target_conn, sizes=disk_sizes) == missing(target_conn, sizes={"sda": 1}) == []


def test_a_snapshot_that_the_target_lacks_is_missing(target_conn):
    snapshot = target_conn.lookupByName("m1").snapshotCreateXML(
        "<domainsnapshot><name>s1</name></domainsnapshot>", 0
    )

    (reason,) = missing(target_conn, snapshots=["s1", "s2"])

    assert reason.startswith("libvirt on the other host has no snapshot s2")
    assert missing(target_conn, snapshots=["s1"]) == missing(target_conn) == []
    snapshot.delete(0)
