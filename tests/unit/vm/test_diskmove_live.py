"""
A host moves a disk of a running VM, and settles what a crash leaves.

libvirt's test driver has no block jobs: ``Qemu`` stands in for QEMU's. Its files are real, and so
are the definition, the records and the trash. ``tests/cloud/test_move_disk.py`` has the real QEMU.
"""

import shutil
import subprocess
from pathlib import Path

import pytest
from clonekit import has, info
from saltvirt.core.errors import LibvirtRefused, StorageError
from saltvirt.core.journal import records
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import blockcopy, changing, lifecycle, query
from saltvirt.libvirt.domains.blockcopy import Copy
from saltvirt.storage import trash
from saltvirt.vm.diskmove.host import moving
from saltvirt.vm.recovery.host import unfinished
from saltvirt.vm.update.host.single import Call
from saltvirt.xml import parse
from saltvirt.xml.domain import disk, domain
from saltvirt.xml.edit import readdomain

CALL, TEST = Call(vm="web1"), Call(vm="web1", test=True)
MIRROR = """<domain><devices><disk type='file' device='disk'><source file='/old'/>
<mirror type='file' file='/new' format='qcow2' job='copy'{}><format type='qcow2'/>
<source file='/new' index='3'/></mirror><target dev='vda' bus='virtio'/></disk>
<disk type='file' device='disk'><target dev='vdb' bus='virtio'/></disk></devices></domain>"""


class Qemu:
    """The block jobs of a running VM's disk, which lies in ``old`` at first."""

    def __init__(self, vm):
        self.vm, self.old = vm, str(Path(vm.settings.images) / "web1_system.qcow2")
        self.now, self.copied, self.is_ready, self.shown = self.old, None, True, []
        self.refuses, self.forgets, self.stops = False, False, False

    def begin(self, _conn, _name, target, xml, *, is_shallow):
        """Begin a copy, which is complete at once."""
        assert target == "vda"
        self.copied = disk.read(parse(xml)).path
        self.shown.append((xml, is_shallow))
        shutil.copyfile(self.old, self.copied)

    def has_job(self, _conn, _name, target):
        """Return whether there is a copy."""
        return target == "vda" and self.copied is not None

    def read_copy(self, _conn, _name, _target):
        """Return the copy, which ends before it is complete if the VM stops."""
        if self.copied is None or self.stops:
            self.copied = None
            return None
        return Copy(file=self.copied, is_ready=self.is_ready, done_bytes=5, total_bytes=10)

    def pivot(self, conn, name, _target):
        """Switch the VM, and its definition as libvirt does."""
        if self.refuses:
            raise LibvirtRefused("not now")
        text = lifecycle.secure_xml(conn, name)
        self.now, self.copied = self.copied, None
        if not self.forgets:
            lifecycle.define(conn, text.replace(self.old, self.now))

    def abort(self, *_given):
        """Give the copy up."""
        self.copied = None

    def install(self, monkeypatch):
        """Stand in for QEMU."""
        self.read_xml = lifecycle.inactive_xml
        for name in ("begin", "has_job", "read_copy", "pivot", "abort"):
            monkeypatch.setattr(blockcopy, name, getattr(self, name))
        monkeypatch.setattr(lifecycle, "xml", self.running_xml)
        monkeypatch.setattr(changing, "disk_size", lambda *_: 8 << 20)
        monkeypatch.setattr(query, "texts", self.texts)
        monkeypatch.setattr(moving, "_LOOK_S", 0.01)

    def texts(self, conn):
        """Yield what is read of all domains: the running VM, and its definition."""
        yield "web1", [self.running_xml(conn, "web1"), self.read_xml(conn, "web1")]

    def running_xml(self, conn, name):
        """Return the running VM: its definition, with the disk that QEMU has."""
        text = self.read_xml(conn, name)
        for path in (self.old, str(self.vm.root / "fast/web1_system.qcow2")):
            text = text.replace(path, self.now)
        return text


@pytest.fixture
def vm(hypervisor):
    """A host with a running VM, and a folder for its disk."""
    (hypervisor.root / "fast").mkdir()
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        hypervisor.conn = conn
        yield hypervisor
        del hypervisor.conn


@pytest.fixture
def qemu(vm, monkeypatch):
    """What stands in for QEMU."""
    stand_in = Qemu(vm)
    stand_in.install(monkeypatch)
    return stand_in


def move(vm, call=CALL):
    """Move the disk called system as the host does."""
    return moving.move_disk(vm.context, call, "system", str(vm.root / "fast"))


def disk_path(conn):
    """Return the file of the definition's first disk."""
    return domain.read(parse(lifecycle.inactive_xml(conn, "web1"))).disks[0].path


def on_record(vm):
    """Return the phases of the moves on record."""
    folder = reservations.folder(vm.settings)
    return [record.phase for record in records.read_records(folder, "diskmove")]


def test_the_disk_of_a_running_vm_is_copied_shallow_and_switched(vm, qemu):
    old, new = Path(qemu.old), vm.root / "fast/web1_system.qcow2"
    subprocess.run(
        ["qemu-io", "-c", "write -P 7 1M 64k", str(old)], check=True, capture_output=True
    )
    backing = info(old)["full-backing-filename"]

    answer = move(vm)

    ((xml, is_shallow),) = qemu.shown
    assert is_shallow and str(new) in xml and "type='qcow2'" in xml.replace('"', "'")
    assert (answer["file"], answer["live"]) == (str(new), True)
    assert " while the VM ran; its old file is in the trash" in answer["outcome"]
    assert disk_path(vm.conn) == qemu.now == str(new) and has(new, 7)
    assert info(new)["full-backing-filename"] == backing
    assert not old.exists() and on_record(vm) == []


def test_a_dry_run_of_a_running_vm_begins_no_copy(vm, qemu):
    assert move(vm, TEST)["outcome"].endswith("of 8.0M, while the VM runs")
    assert qemu.shown == []


def test_the_definition_is_changed_if_libvirt_has_not_done_so(vm, qemu):
    qemu.forgets = True
    new = move(vm)["file"]
    assert disk_path(vm.conn) == qemu.now == new


@pytest.mark.parametrize("fault", ["refuses", "stops"])
def test_a_copy_that_fails_leaves_the_vm_as_it_was(vm, qemu, fault):
    setattr(qemu, fault, True)
    with pytest.raises(LibvirtRefused, match="not now|ended before it was complete"):
        move(vm)
    assert disk_path(vm.conn) == qemu.now == qemu.old and qemu.copied is None
    assert list((vm.root / "fast").glob("web1*")) == [] and on_record(vm) == []


def test_a_copy_that_stands_still_is_given_up(vm, qemu, monkeypatch):
    qemu.is_ready = False
    monkeypatch.setattr(moving, "STALL_S", 0.1)
    with pytest.raises(LibvirtRefused, match="nothing of disk vda was copied for 0.1 s"):
        move(vm)
    assert qemu.copied is None and disk_path(vm.conn) == qemu.old and on_record(vm) == []


def test_a_lost_answer_of_the_switch_is_no_failure(vm, qemu, monkeypatch):
    def pivot(*given):
        qemu.pivot(*given)
        raise LibvirtRefused("the connection is gone")

    monkeypatch.setattr(blockcopy, "pivot", pivot)
    assert move(vm)["trash"]
    assert disk_path(vm.conn) == qemu.now != qemu.old and not Path(qemu.old).exists()


def test_an_interruption_while_it_is_copied_undoes_the_move(vm, qemu, monkeypatch):
    def interrupted(_seconds):
        raise SystemExit(143)

    qemu.is_ready = False
    monkeypatch.setattr(moving.time, "sleep", interrupted)
    with pytest.raises(SystemExit):
        move(vm)
    assert qemu.copied is None and disk_path(vm.conn) == qemu.old and on_record(vm) == []


def test_a_new_file_that_is_too_small_keeps_the_old_one_and_the_record(vm, qemu, monkeypatch):
    monkeypatch.setattr(changing, "disk_size", lambda *_: 4 << 20)
    with pytest.raises(StorageError, match="has 4,194,304 bytes, and the disk had 8,388,608"):
        move(vm)
    assert Path(qemu.old).exists() and on_record(vm) == ["switching"]

    monkeypatch.setattr(changing, "disk_size", lambda *_: 8 << 20)
    unfinished.settle(vm.conn, vm.settings)
    assert not Path(qemu.old).exists() and on_record(vm) == []
    assert [entry["files"] for entry in trash.list_entries(vm.settings).values()] == [[qemu.old]]


@pytest.mark.parametrize(("point", "is_moved"), [("switching", False), ("before-moved", True)])
def test_a_killed_move_of_a_running_vm_is_settled_by_what_it_runs_on(
    vm, qemu, monkeypatch, point, is_moved
):
    new = vm.root / "fast/web1_system.qcow2"
    vm.dies(lambda: move(vm), f"diskmove.{point}")
    # The process that died had the stand-in's state: QEMU goes on with its job.
    qemu.now, qemu.copied = (str(new), None) if is_moved else (qemu.old, str(new))
    with vm.libvirt() as conn:
        lifecycle.start(conn, "web1")
        unfinished.settle(conn, vm.settings)
        assert disk_path(conn) == qemu.now and qemu.copied is None
    assert on_record(vm) == [] and new.exists() == is_moved == (not Path(qemu.old).exists())


def test_another_block_job_refuses_the_move(vm, qemu):
    qemu.copied = "/elsewhere"
    with pytest.raises(LibvirtRefused, match="libvirt works on vda"):
        move(vm)
    assert qemu.copied == "/elsewhere"


@pytest.mark.parametrize(("ready", "is_ready"), [("", False), (" ready='yes'", True)])
def test_a_copy_is_read_from_the_running_disk(ready, is_ready):
    root = parse(MIRROR.format(ready))
    assert readdomain.mirror(root, "vda") == ("/new", is_ready)
    assert readdomain.mirror(root, "vdb") is readdomain.mirror(root, "vdz") is None
