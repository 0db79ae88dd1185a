"""Snapshots are taken, deleted and reverted to only if that spoils nothing else."""

import re
import subprocess

import libvirt
import pytest
import verdicts
from saltvirt.core.errors import LibvirtRefused
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import lifecycle, snapshots
from saltvirt.storage import snapshotguard, trash

VM = """<domain type='test'><name>{}</name><memory>1024</memory>
<os><type arch='i686'>hvm</type></os><devices><disk type='file' device='disk'>
<driver name='qemu' type='qcow2'/><source file='{}'/><target dev='vda'/></disk></devices>
</domain>"""


@pytest.fixture
def conn():
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False) as opened:
        yield opened
        for name in opened.listDefinedDomains():
            vm = opened.lookupByName(name)
            if vm.hasManagedSaveImage():
                vm.managedSaveRemove()
            vm.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA)


def qemu_img(*words):
    """Run qemu-img."""
    subprocess.run(["qemu-img", *map(str, words)], check=True, capture_output=True)


@pytest.fixture
def disk(conn, tmp_path):
    """The disk of a VM."""
    path = tmp_path / "web1_system.qcow2"
    qemu_img("create", "-f", "qcow2", path, "1M")
    conn.defineXML(VM.format("web1", path))
    return path


def take(conn, name, *, is_external=False):
    """Take a snapshot of the VM."""
    snapshots.take(conn, "web1", name, is_external=is_external, is_quiesced=False)


def saved(conn):
    """Have the VM have a saved state."""
    vm = conn.lookupByName("web1")
    vm.create()
    vm.managedSave()
    return vm


@pytest.fixture
def external(conn, disk, monkeypatch):
    """Take a snapshot after which the disk goes on in another file; return that."""
    made, read = {}, libvirt.virDomainSnapshot.getXMLDesc

    def says(self, *flags):
        # The test driver makes internal ones alone.
        source = f"<source file='{made.get(self.getName())}'/></disk></disks>"
        text = f"<disks><disk name='vda' snapshot='external'>{source}"
        found = read(self, *flags)
        if self.getName() not in made:
            return found
        return re.sub("<disks>.*</disks>", text, found, flags=re.DOTALL)

    monkeypatch.setattr(libvirt.virDomainSnapshot, "getXMLDesc", says)

    def call(name):
        take(conn, name)
        made[name] = disk.with_suffix(f".{name}")
        return made[name]

    return call


def test_no_disk_goes_on_elsewhere_while_a_saved_state_is_to_go_on_in_it(conn, disk):
    vm = saved(conn)
    why = "saved state .* would go on in what is below the new files .*managedsave-remove web1"

    with pytest.raises(LibvirtRefused, match=why):
        take(conn, "s1", is_external=True)

    assert snapshots.names(conn, "web1") == []
    vm.managedSaveRemove()
    assert snapshots.why_not(conn, "web1", is_external=True) is None


def test_the_file_that_a_saved_state_goes_on_in_does_not_go(conn, settings, external):
    external("s1")
    saved(conn)

    with pytest.raises(LibvirtRefused, match="goes on in a file that would be gone"):
        snapshotguard.delete(conn, settings, "web1", ["s1"])

    assert snapshots.names(conn, "web1") == ["s1"]


@pytest.mark.parametrize("names", [["s1"], []])
def test_what_another_vm_is_based_on_is_not_written_to_when_a_snapshot_goes(
    conn, settings, disk, external, tmp_path, names
):
    external("s1")
    linked = tmp_path / "db1.qcow2"
    qemu_img("create", "-f", "qcow2", "-F", "qcow2", "-b", disk, linked)
    other = conn.defineXML(VM.format("db1", linked))

    with pytest.raises(
        LibvirtRefused, match="web1_system.qcow2 of .* stays as it is: a disk of VM 'db1'"
    ):
        snapshotguard.delete(conn, settings, "web1", names)

    other.undefine()
    with pytest.raises(LibvirtRefused, match="db1.qcow2 is based on it, a file that no VM here"):
        snapshotguard.delete(conn, settings, "web1", names)
    linked.unlink()
    assert list(snapshotguard.delete(conn, settings, "web1", names)["deleted"]) == ["s1"]


@pytest.mark.parametrize("names", [["e1", "s2"], []])
def test_an_internal_snapshot_that_goes_too_keeps_no_file(conn, settings, disk, external, names):
    overlay = external("e1")
    qemu_img("create", "-f", "qcow2", "-F", "qcow2", "-b", disk, overlay)
    conn.defineXML(
        VM.replace("<name>", f"<uuid>{lifecycle.uuid(conn, 'web1')}</uuid><name>").format(
            "web1", overlay
        )
    )
    take(conn, "s2")
    why = "snapshot 's2' of VM 'web1' itself is kept in it; delete that snapshot first"

    with pytest.raises(LibvirtRefused, match=why):
        snapshotguard.delete(conn, settings, "web1", ["e1"])

    assert set(snapshotguard.delete(conn, settings, "web1", names)["deleted"]) == {"e1", "s2"}
    assert snapshots.names(conn, "web1") == []


def test_what_a_disk_in_the_trash_is_based_on_is_not_written_to(
    conn, settings, disk, external, tmp_path
):
    take(conn, "s1")
    linked = tmp_path / "db1.qcow2"
    qemu_img("create", "-f", "qcow2", "-F", "qcow2", "-b", disk, linked)
    with trash.fill_trash(settings, "db1", reason="a test") as drop:
        drop(verdicts.free(linked))
    why = r"web1_system.qcow2 of .* stays as it is: a disk in the trash .entry db1-\w+. is"

    with pytest.raises(LibvirtRefused, match=why):
        snapshotguard.plan_revert(conn, settings, "web1", "s1", with_cleanup=False)
    external("s2")
    with pytest.raises(LibvirtRefused, match=why):
        snapshotguard.delete(conn, settings, "web1", ["s2"])

    assert snapshots.names(conn, "web1") == ["s1", "s2"]
    trash.empty(settings)
    assert list(snapshotguard.delete(conn, settings, "web1", ["s2"])["deleted"]) == ["s2"]


def test_nor_is_what_one_may_be_based_on_that_is_out_of_reach(
    conn, settings, disk, external, tmp_path
):
    external("s1")
    other = conn.defineXML(VM.format("db1", tmp_path / "unmounted/db1.qcow2"))

    with pytest.raises(LibvirtRefused, match="a VM may be based on it: .*db1.qcow2 of VM 'db1'"):
        snapshotguard.delete(conn, settings, "web1", ["s1"])

    other.undefine()
    assert list(snapshotguard.delete(conn, settings, "web1", ["s1"])["deleted"]) == ["s1"]


def test_the_vm_that_has_the_file_that_would_be_written_to_is_named(conn, settings, disk, external):
    external("s1")
    conn.defineXML(VM.format("db1", disk))

    with pytest.raises(LibvirtRefused, match="VM 'db1' has it as a disk"):
        snapshotguard.delete(conn, settings, "web1", ["s1"])


def test_all_vms_are_looked_at_once_however_many_snapshots_go(
    conn, settings, external, monkeypatch
):
    for name in ("s1", "s2", "s3"):
        external(name)
    looked, overlays_of = [], lifecycle.overlays_by_vm

    def counted(*args, **given):
        looked.append(args)
        return overlays_of(*args, **given)

    monkeypatch.setattr(lifecycle, "overlays_by_vm", counted)

    assert len(snapshotguard.delete(conn, settings, "web1", [])["deleted"]) == 3
    assert len(looked) <= 2


def test_what_another_vm_is_based_on_does_not_go_back(conn, settings, disk, tmp_path):
    take(conn, "s1")
    linked = tmp_path / "db1.qcow2"
    qemu_img("create", "-f", "qcow2", "-F", "qcow2", "-b", disk, linked)
    other = conn.defineXML(VM.format("db1", linked))

    with pytest.raises(LibvirtRefused, match="a disk of VM 'db1' is based on it"):
        snapshotguard.plan_revert(conn, settings, "web1", "s1", with_cleanup=False)

    other.undefine()
    linked.unlink()
    plan, _verdicts = snapshotguard.plan_revert(conn, settings, "web1", "s1", with_cleanup=False)
    assert plan.to == "s1"


def test_newer_ones_are_not_cleaned_up_over_what_another_vm_is_based_on(
    conn, settings, disk, external, tmp_path
):
    take(conn, "s1")
    above = external("s2")
    qemu_img("create", "-f", "qcow2", "-F", "qcow2", "-b", disk, above)
    linked = tmp_path / "db1.qcow2"
    qemu_img("create", "-f", "qcow2", "-F", "qcow2", "-b", above, linked)
    conn.defineXML(VM.format("db1", linked))

    with pytest.raises(LibvirtRefused, match="a disk of VM 'db1' is based on it"):
        snapshotguard.plan_revert(conn, settings, "web1", "s1", with_cleanup=True)


def test_qemu_is_not_asked_for_what_it_takes_for_the_number_of_another(conn, settings, disk):
    qemu_img("snapshot", "-c", "2", disk)
    qemu_img("snapshot", "-c", "second", disk)
    vm = conn.lookupByName("web1")
    for name in ("2", "second"):
        # As virsh takes it.
        vm.snapshotCreateXML(f"<domainsnapshot><name>{name}</name></domainsnapshot>", 0)

    with pytest.raises(LibvirtRefused, match="to its snapshot 'second', as that has the number 2"):
        snapshotguard.plan_revert(conn, settings, "web1", "2", with_cleanup=False)

    plan, _verdicts = snapshotguard.plan_revert(
        conn, settings, "web1", "second", with_cleanup=False
    )
    assert plan.to == "second"


def test_a_disk_that_is_gone_is_libvirts_to_say(conn, settings, disk):
    take(conn, "s1")
    disk.unlink()

    plan, _verdicts = snapshotguard.plan_revert(conn, settings, "web1", "s1", with_cleanup=False)
    assert plan.to == "s1"
    assert list(snapshotguard.delete(conn, settings, "web1", ["s1"])["deleted"]) == ["s1"]
