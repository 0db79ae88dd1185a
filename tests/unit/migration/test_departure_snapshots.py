"""A stopped VM moves with its disks' snapshots; its source has them until it has arrived."""

import libvirt
import pytest
from endkit import is_untouched
from saltvirt.core import wire
from saltvirt.core.journal.movefacts import Noted
from saltvirt.libvirt.domains import lifecycle, migrate, snapshots
from saltvirt.libvirt.domains.migrate import MigrationFailed
from saltvirt.vm.show.host import migrationinfo
from saltvirt.xml.storage import snapshot

TAKEN = """<domainsnapshot><name>{}</name><creationTime>1</creationTime>
<disks><disk name='vda' snapshot='{}'/><disk name='vdb' snapshot='no'/></disks>
<domain><devices>
<disk type='file' device='disk'><source file='/srv/a.qcow2'/><target dev='vda'/></disk>
<disk type='file' device='disk'><source file='/srv/b.qcow2'/><target dev='vdb'/></disk>
</devices></domain></domainsnapshot>"""


@pytest.fixture
def take(conn):
    """A function that takes snapshots of web1, each a child of the one before."""

    def take(*names):
        for name in names:
            xml = f"<domainsnapshot><name>{name}</name></domainsnapshot>"
            conn.lookupByName("web1").snapshotCreateXML(xml, 0)

    yield take
    for vm in conn.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_HAS_SNAPSHOT):
        for taken_snapshot in vm.listAllSnapshots():
            taken_snapshot.delete(0)


def test_its_source_keeps_the_snapshots_until_it_has_arrived(end, conn, take):
    end.make(conn)
    take("s1", "s2")
    end.begin()
    end.send()

    assert snapshots.names(conn, "web1") == ["s1", "s2"]
    noted = end.state(conn)["noted"]
    assert wire.argument("noted", Noted, noted).snapshots == ["s1", "s2"]
    end.step("finish")
    assert not lifecycle.is_defined(conn, "web1") and end.hypervisor.files() == []


@pytest.mark.parametrize(("leaves", "expected"), [(True, ["s1", "s2"]), (False, ())])
def test_the_targets_libvirt_is_checked_for_snapshots(
    end, conn, take, monkeypatch, leaves, expected
):
    calls = []
    # The target's libvirt is replaced; in a move by hand the target does not check.
    monkeypatch.setattr(
        migrate, "find_missing_on_target", lambda *_, **options: calls.append(options) or []
    )
    end.make(conn)
    take("s1", "s2")
    end.begin()
    end.send(undefinesource=leaves)

    end.step("finish")

    assert [options["snapshots"] for options in calls] == [expected]
    if not leaves:
        for taken_snapshot in conn.lookupByName("web1").listAllSnapshots():
            taken_snapshot.delete(0)
        conn.lookupByName("web1").undefine()


def test_a_snapshot_that_was_taken_after_the_sending_is_not_removed(end, conn, take):
    end.make(conn)
    take("s1")
    end.begin()
    end.send()
    take("by-hand")

    with pytest.raises(libvirt.libvirtError, match="snapshots"):
        end.step("finish")
    assert snapshots.names(conn, "web1") == ["by-hand", "s1"]


def test_a_snapshot_that_is_deleted_while_the_vm_is_sent_keeps_the_vm(end, conn, take):
    paths = end.make(conn)
    take("s1", "s2")
    end.begin()
    changes = [conn.lookupByName("web1").snapshotLookupByName("s2").delete]
    end.meanwhile = lambda: changes and changes.pop()(0)

    with pytest.raises(MigrationFailed, match="it has other snapshots now"):
        end.send()
    assert end.phase("departure") == "cancelled" and is_untouched(end, paths)


@pytest.mark.parametrize(
    ("location", "files", "is_running", "expected"),
    [
        ("internal", "/srv/a.qcow2", False, []),
        ("internal", "/srv/a.qcow2", True, ["it has snapshots, which libvirt does not move while"]),
        ("external", "/srv/a.qcow2", False, [r"it has external snapshots (s1), which do not move"]),
        ("internal", "/srv/new.qcow2", False, ["its snapshot s1 is in /srv/a.qcow2 too, which"]),
    ],
)
def test_snapshots_that_cannot_move_are_named(location, files, is_running, expected):
    taken_snapshot = snapshot.read(TAKEN.format("s1", location))

    reasons = list(
        migrationinfo._snapshot_obstacles([taken_snapshot], [{"path": files}], is_running)
    )

    assert [
        reason[: len(start)] for reason, start in zip(reasons, expected, strict=True)
    ] == expected
