"""Snapshots of a VM that goes: what is below its disks goes too, what nobody could use is said."""

import os
import shutil
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path

import libvirt
import pytest
from saltvirt.core.errors import LibvirtRefused
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import (
    definitionfiles,
    ownermark,
    policies,
    trash,
    unreadablechains,
    usage,
    vmvolumes,
)
from saltvirt.vm.purge.host import purge
from saltvirt.vm.recovery.host import unfinished
from snapshotxml import DISK, VM
from snapshotxml import SNAPSHOT as EXTERNAL

SNAPSHOT = "<domainsnapshot><name>s1</name></domainsnapshot>"


@pytest.mark.parametrize("is_others", [False, True])
def test_what_an_external_snapshot_has_left_below_its_disk_goes_too(hypervisor, is_others):
    with hypervisor.libvirt():
        hypervisor.init()
    images = Path(hypervisor.settings.images)
    below, upper = images / "web1_data.qcow2", images / "web1_data.before"
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", below, upper]
    subprocess.run(argv, check=True)
    path = hypervisor.definitions / "web1.xml"
    path.write_text(path.read_text().replace(str(below), str(upper)))
    if is_others:
        # Another VM that somebody has made over it.
        ownermark.mark(below, "db1", "11111111-1111-1111-1111-111111111111")

    with hypervisor.libvirt() as conn:
        purge.purge(conn, hypervisor.settings, "web1")

    assert hypervisor.files() == ([below.name] if is_others else [])


@pytest.mark.parametrize("is_volume", [False, True])
def test_what_an_external_snapshot_of_another_vm_is_based_on_stays(hypervisor, is_volume):
    """A linked clone had a snapshot taken, and its disk was taken out of it."""
    with hypervisor.libvirt():
        hypervisor.init()
    below = Path(hypervisor.settings.images) / "web1_data.qcow2"
    linked = hypervisor.root / "db1.qcow2"
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", below, linked]
    subprocess.run(argv, check=True)
    other = VM.replace("web1", "db1")
    with hypervisor.libvirt() as conn:
        vm = conn.defineXML(other.format(DISK.format(linked)))
        text = EXTERNAL.format(hypervisor.root / "db1.s1", vm.XMLDesc())
        vm.snapshotCreateXML(text, libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE)
        conn.defineXML(other.format(""))
        try:
            if is_volume:
                pool = f"<target><path>{below.parent}</path></target></pool>"
                conn.storagePoolCreateXML(f"<pool type='dir'><name>p1</name>{pool}").createXML(
                    f"<volume><name>{below.name}</name><capacity>1024</capacity></volume>"
                )
                where = (policies.UNDO, "p1", below.name, "web1")
                assert vmvolumes.judge_volume(conn, hypervisor.settings, *where).used_by
            else:
                purge.purge(conn, hypervisor.settings, "web1")
                assert hypervisor.files() == [below.name]
        finally:
            vm.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA)
            if is_volume:
                conn.storagePoolLookupByName("p1").destroy()


def over(hypervisor, upper, below):
    """Have a VM of a host go on in another file, as after an external snapshot."""
    name = os.path.relpath(below, upper.parent)
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", name, upper]
    subprocess.run(argv, check=True)
    path = hypervisor.definitions / "web1.xml"
    path.write_text(path.read_text().replace(str(below), str(upper)))


def test_what_is_below_by_a_name_that_leads_through_another_folder_is_not_lost(hypervisor):
    settings = replace(hypervisor.settings, trash_days=7)
    with hypervisor.libvirt():
        hypervisor.init()
    images = Path(settings.images)
    (images / "snapshots").mkdir()
    below, upper = images / "web1_data.qcow2", images / "snapshots/web1_data.before"
    over(hypervisor, upper, below)

    with hypervisor.libvirt() as conn:
        purge.purge(conn, settings, "web1")
    for folder in (images / "snapshots/.salt-virt-trash").iterdir():
        # Somebody tidies up, and says that it is for good: the snapshot is not wanted.
        shutil.rmtree(folder.parent.parent)
        folder.mkdir(parents=True)
    ((entry, said),) = trash.list_entries(settings).items()

    assert str(below) in said["files"]
    trash.restore(settings, entry)
    assert below.exists()


def test_what_an_overlay_on_a_block_device_is_based_on_stays(hypervisor, tmp_path, monkeypatch):
    with hypervisor.libvirt():
        hypervisor.init()
    below, device = Path(hypervisor.settings.images) / "web1_data.qcow2", tmp_path / "device"
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", below, device]
    subprocess.run(argv, check=True)
    for kind, is_it in (("is_file", False), ("is_block_device", True)):
        old = getattr(Path, kind)
        new = partial(lambda is_it, old, one: is_it if one == device else old(one), is_it, old)
        monkeypatch.setattr(Path, kind, lambda one, new=new: new(one))
    xml = f"""<domain type='test'><name>db1</name><memory>1024</memory><os><type>hvm</type></os>
<devices><disk type='block'><driver type='qcow2'/><source dev='{device}'/><target dev='vda'/></disk>
</devices></domain>"""

    with hypervisor.libvirt() as conn:
        conn.defineXML(xml)
        purge.purge(conn, hypervisor.settings, "web1")

    assert hypervisor.files() == [below.name]


def test_nothing_below_goes_while_a_vm_is_not_known_that_may_be_based_on_it(
    hypervisor, monkeypatch
):
    with hypervisor.libvirt():
        hypervisor.init()
    images = Path(hypervisor.settings.images)
    below, upper = images / "web1_data.qcow2", images / "web1_data.before"
    over(hypervisor, upper, below)
    # Say of a VM that was made over the older file, by hand.
    (hypervisor.root / "lost").mkdir()
    (hypervisor.root / "lost/db1.xml").touch()

    with hypervisor.libvirt() as conn:
        monkeypatch.setattr(definitionfiles, "_DEFINITIONS", hypervisor.root / "lost")
        purge.purge(conn, hypervisor.settings, "web1")

    # Nothing is lost: all of it can be brought back.
    assert hypervisor.files() == []
    (entry,) = trash.list_entries(hypervisor.settings).values()
    assert {str(below), str(upper)} <= set(entry["files"])


@pytest.mark.parametrize(
    ("lose", "option", "why"),
    [
        (lambda dom: dom.managedSave(0), "managed_save", "has a saved state"),
        (
            lambda dom: (dom.snapshotCreateXML(SNAPSHOT), dom.destroy()),
            "snapshots",
            r"has snapshots .s1.*delete_snapshots web1 all=True",
        ),
    ],
)
def test_what_a_definition_alone_keeps_is_not_lost_with_it(hypervisor, lose, option, why):
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        lose(conn.lookupByName("web1"))
        with pytest.raises(LibvirtRefused, match=f"VM 'web1' {why}.*{option}=True"):
            purge.undefine(conn, hypervisor.settings, "web1")
        assert lifecycle.is_defined(conn, "web1")

        purge.undefine(conn, hypervisor.settings, "web1", **{option: True})

        assert not lifecycle.is_defined(conn, "web1")


def test_what_a_backup_goes_on_from_is_not_lost_with_a_definition(hypervisor, monkeypatch):
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        vm = conn.lookupByName("web1")
        made = vm.checkpointCreateXML("<domaincheckpoint><name>c1</name></domaincheckpoint>")
        vm.destroy()
        with pytest.raises(LibvirtRefused, match="has checkpoints, .* or give snapshots=True"):
            purge.undefine(conn, hypervisor.settings, "web1")
        assert lifecycle.is_defined(conn, "web1")
        made.delete()
        # The test driver undefines no VM that has one.
        monkeypatch.setattr(lifecycle, "list_domains_with_checkpoints", lambda _conn: {"web1"})

        purge.undefine(conn, hypervisor.settings, "web1", snapshots=True)

        assert not lifecycle.is_defined(conn, "web1")


def test_it_is_asked_once_for_all_disks_whether_a_vm_is_out_of_reach(hypervisor, monkeypatch):
    asked, reasons = [], unreadablechains.reasons

    def counted(*args, **given):
        asked.append(given)
        return reasons(*args, **given)

    monkeypatch.setattr(unreadablechains, "reasons", counted)
    with hypervisor.libvirt():
        hypervisor.init(disks=[{"name": "data", "size": 8}, {"name": "log", "size": 8}])
    images = Path(hypervisor.settings.images)
    for name in ("data", "log"):
        over(hypervisor, images / f"web1_{name}.before", images / f"web1_{name}.qcow2")
    asked.clear()

    with hypervisor.libvirt() as conn:
        purge.purge(conn, hypervisor.settings, "web1")

    # Before the VM is undefined, and before its files go.
    assert hypervisor.files() == [] and len(asked) <= 2


def test_what_snapshots_of_several_vms_need_is_needed_by_each(hypervisor):
    base, images = hypervisor.root / "base.qcow2", Path(hypervisor.settings.images)
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", base, "1M"], check=True)
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base]
    texts = {}
    with hypervisor.libvirt() as conn:
        for name in ("db1", "db2"):
            disk = hypervisor.root / f"{name}.qcow2"
            subprocess.run([*argv, disk], check=True)
            other = VM.replace("web1", name).replace("0001", f"000{name[-1]}")
            texts[name] = other.format("")
            vm = conn.defineXML(other.format(DISK.format(disk)))
            text = EXTERNAL.format(f"{disk}.s1", vm.XMLDesc())
            vm.snapshotCreateXML(text, libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE)
            conn.defineXML(texts[name])
        images.mkdir(exist_ok=True)
        try:
            for name in texts:
                index = usage.index(conn, hypervisor.settings, excluded_vms=[name])
                kept = unfinished.remove(hypervisor.settings, index, policies.DELETE, [str(base)])
                assert kept == []
        finally:
            for name in texts:
                flags = libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
                conn.lookupByName(name).undefineFlags(flags)

    assert base.exists()
