"""Reverting leaves disks of other VMs alone; an error names the steps that were done before it."""

import faces
import libvirt
import pytest
from saltvirt.core.errors import LibvirtRefused
from saltvirt.libvirt.domains import lifecycle
from saltvirt.xml.storage import snapshot

VM = """<domain type='test'><name>{}</name>{}<memory>1024</memory>
<os><type arch='i686'>hvm</type></os><devices>{}</devices></domain>"""
DISK = """<disk type='file' device='{}'><driver name='qemu' type='qcow2'/>
<source file='{}'/><target dev='{}'/>{}</disk>"""
SYSTEM = DISK.format("disk", "/srv/web1_system.qcow2", "vda", "")
DATA = DISK.format("disk", "/srv/data.qcow2", "vdb", "")


@pytest.fixture
def virt_snapshot(conn, tmp_path):
    return faces.load("modules", "virt_snapshot", {"state_dir": str(tmp_path)})


def redefine(conn, name, *disks):
    """Define a VM with these disks only."""
    uuid = lifecycle.uuid_if_defined(conn, name)
    conn.defineXML(VM.format(name, f"<uuid>{uuid}</uuid>" if uuid else "", "".join(disks)))


def test_a_disk_that_is_another_vms_by_now_does_not_go_back(conn, virt_snapshot):
    redefine(conn, "web1", SYSTEM, DATA)
    virt_snapshot.snapshot("web1", "s1")
    redefine(conn, "web1", SYSTEM)
    redefine(conn, "db1", DATA)

    with pytest.raises(LibvirtRefused, match=r"/srv/data\.qcow2 .*VM 'db1' has it as a disk"):
        virt_snapshot.revert_snapshot("web1", "s1")

    assert "/srv/data.qcow2" not in lifecycle.disks(conn)["web1"]


def test_a_disk_of_no_other_vm_and_a_medium_go_back(conn, virt_snapshot):
    medium = DISK.format("cdrom", "/srv/a.iso", "hda", "<readonly/>")
    redefine(conn, "web1", SYSTEM, DATA, medium)
    virt_snapshot.snapshot("web1", "s1")
    redefine(conn, "web1", SYSTEM)
    redefine(conn, "db1", medium)

    assert virt_snapshot.revert_snapshot("web1", "s1")["reverted"] == "s1"
    assert "/srv/data.qcow2" in lifecycle.disks(conn)["web1"]


@pytest.mark.parametrize(
    ("place", "goes_back"),
    [("internal", ("/srv/data.qcow2",)), ("external", ("/srv/data.qcow2",)), ("no", ())],
)
def test_a_snapshot_lists_the_files_that_a_revert_changes(place, goes_back):
    text = (
        f"<domainsnapshot><name>a</name><disks><disk name='vdb' snapshot='{place}'/></disks>"
        f"{VM.format('web1', '', SYSTEM + DATA)}</domainsnapshot>"
    )
    assert snapshot.read(text).reverted == goes_back


@pytest.fixture
def undeletable(monkeypatch):
    """A snapshot that cannot be deleted."""
    delete = libvirt.virDomainSnapshot.delete

    def refuse(self, *args):
        if self.getName() == "b":
            raise libvirt.libvirtError("deletion of external snapshots not supported")
        return delete(self, *args)

    monkeypatch.setattr(libvirt.virDomainSnapshot, "delete", refuse)


def test_a_clean_up_that_fails_reports_that_the_vm_was_reverted(conn, virt_snapshot, undeletable):
    redefine(conn, "web1", SYSTEM)
    for name in ("a", "b", "c"):
        virt_snapshot.snapshot("web1", name)

    with pytest.raises(LibvirtRefused, match="done before: reverted to 'a', deleted 'c'"):
        virt_snapshot.revert_snapshot("web1", "a", cleanup=True)


def test_a_deletion_that_fails_names_the_deleted_snapshots(conn, virt_snapshot, undeletable):
    redefine(conn, "web1", SYSTEM)
    for name in ("a", "b", "c"):
        virt_snapshot.snapshot("web1", name)

    with pytest.raises(LibvirtRefused, match="not supported; done before: deleted 'c'$"):
        virt_snapshot.delete_snapshots("web1", all=True)
    with pytest.raises(LibvirtRefused, match="^deletion of external snapshots not supported$"):
        virt_snapshot.delete_snapshots("web1", "b")


def test_a_saved_state_does_not_go_on_over_disks_that_went_back(conn, virt_snapshot):
    redefine(conn, "web1", SYSTEM)
    virt_snapshot.snapshot("web1", "s1")
    vm = conn.lookupByName("web1")
    vm.create()
    vm.managedSave()

    with pytest.raises(LibvirtRefused, match="has a saved state .*managedsave-remove web1"):
        virt_snapshot.revert_snapshot("web1", "s1")

    vm.managedSaveRemove()
    assert virt_snapshot.revert_snapshot("web1", "s1")["reverted"] == "s1"


def test_a_snapshot_that_is_deleted_while_all_are_listed_is_left_out(
    conn, virt_snapshot, monkeypatch
):
    redefine(conn, "web1", SYSTEM)
    virt_snapshot.snapshot("web1", "a")
    virt_snapshot.snapshot("web1", "b")
    read = libvirt.virDomainSnapshot.getXMLDesc

    def gone(self, *flags):
        if self.getName() == "a":
            error = libvirt.libvirtError("Domain snapshot not found")
            error.err = (libvirt.VIR_ERR_NO_DOMAIN_SNAPSHOT, 0, "gone", 0, "", "", "", 0, 0)
            raise error
        return read(self, *flags)

    monkeypatch.setattr(libvirt.virDomainSnapshot, "getXMLDesc", gone)

    assert [row["name"] for row in virt_snapshot.list_snapshots()["web1"]] == ["b"]
