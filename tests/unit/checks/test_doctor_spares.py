"""What the doctor spares of a host: what something may need that is not seen at first sight."""

import dataclasses
import os
import xml.etree.ElementTree as ET

import faces
import pytest
import verdicts
from saltvirt.checks.doctor.host import unusedfiles
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import definitionfiles, ownermark, sharing, trash
from test_doctor_facts import LEFT, _device, built, forget, look, old, path_of, shown, stays

__all__ = ["built"]


def test_what_libvirt_has_not_loaded_keeps_all_files(built, monkeypatch, tmp_path):
    kept = tmp_path / "not-loaded"
    kept.mkdir()
    (kept / "web1.xml").write_text((built.definitions / "web1.xml").read_text())
    # The test driver has no files of its own; QEMU's skips one that it cannot read.
    monkeypatch.setattr(definitionfiles, "_DEFINITIONS", kept, raising=False)
    forget(built)

    said = look(built)

    assert (said.files, said.busy) == ([], ["web1"])
    assert "web1.xml" in said.unreadable["web1"]
    stays(built, *(path_of(built, name) for kind, name in LEFT if kind == "disk"))


def test_a_definition_that_libvirt_knows_hides_nothing(built, monkeypatch):
    monkeypatch.setattr(definitionfiles, "_DEFINITIONS", built.definitions, raising=False)

    assert look(built).unreadable == {}


def test_what_is_used_of_shared_storage_is_said_also_by_a_host_that_judges_nothing(
    built, monkeypatch
):
    path = path_of(built, "web1_data.qcow2")
    monkeypatch.setattr(sharing, "_file_systems_by_device", lambda: {_device(path): "nfs4"})
    broken = reservations.folder(built.settings) / "build/web9.json"
    broken.parent.mkdir(parents=True, exist_ok=True)
    broken.write_text("{")

    assert path in look(built).shared


def test_what_another_host_has_made_is_not_shown(built, monkeypatch, tmp_path):
    forget(built)
    other = tmp_path / "machine-id"
    other.write_text("7" * 32)
    # There is one machine here; the other one has another number.
    monkeypatch.setattr(ownermark, "_MACHINE", other, raising=False)

    assert shown(built) == []


def test_a_hard_link_in_another_folder_is_not_ours(built, tmp_path):
    backup = tmp_path / "backup"
    backup.mkdir()
    os.link(path_of(built, "web1_data.qcow2"), backup / "web1_data.qcow2")

    assert ownermark.read_owner(path_of(built, "web1_data.qcow2")).vm == "web1"
    assert ownermark.read_owner(backup / "web1_data.qcow2") is None


def test_a_disk_that_was_taken_as_it_is_and_then_detached_is_not_shown(built):
    path = path_of(built, "web1_data.qcow2")
    forget(built)
    (built.definitions / "web1.xml").unlink(missing_ok=True)
    with built.libvirt() as conn:
        built.init()
        text = conn.lookupByName("web1").XMLDesc(2)
        root = ET.fromstring(text)
        (one,) = [d for d in root.iter("disk") if d.find("source").get("file") == path]
        root.find("devices").remove(one)
        lifecycle.define(conn, ET.tostring(root, encoding="unicode"))
    for name in built.files():
        old(path_of(built, name))

    assert shown(built) == []


def test_an_entry_of_the_trash_that_cannot_be_read_keeps_all_files(built):
    forget(built)
    broken = reservations.folder(built.settings) / trash.PURPOSE / "web9-1.json"
    broken.parent.mkdir(parents=True, exist_ok=True)
    broken.write_text("{")

    assert shown(built) == []
    stays(built, path_of(built, "web1_data.qcow2"))


def test_what_any_program_has_open_is_not_shown(built):
    forget(built)
    path = path_of(built, "web1_data.qcow2")

    # As whoever looks into a disk, or copies it, without QEMU's locks.
    with open(path, "rb"):
        assert shown(built) == LEFT[1:]

    assert shown(built) == LEFT


def test_what_is_a_loop_device_is_not_shown(built, monkeypatch, tmp_path):
    forget(built)
    path = path_of(built, "web1_data.qcow2")
    shown_as = tmp_path / "loop7/loop/backing_file"
    shown_as.parent.mkdir(parents=True)
    shown_as.write_text(path + "\n")
    # A loop device is the whole machine's: a test makes none.
    monkeypatch.setattr(unusedfiles, "_BLOCK", tmp_path, raising=False)

    assert shown(built) == LEFT[1:]


@pytest.mark.parametrize("how", ["virt.init", "virt.define_xml_str"])
def test_a_disk_that_another_vm_was_given_and_that_was_detached_is_not_shown(built, how):
    path = path_of(built, "web1_data.qcow2")
    forget(built)
    (built.definitions / "web1.xml").unlink(missing_ok=True)
    disk = {"name": "more", "source_file": path}
    with built.libvirt() as conn:
        if how == "virt.init":
            built.init("db1", disks=[disk])
        else:
            face = faces.load("modules", "virt_define", {"state_dir": built.settings.state_dir})
            face.define_xml_str(
                "<domain type='test'><name>db1</name><memory>1024</memory><os><type arch='i686'>hvm"
                f"</type></os><devices><disk type='file'><source file='{path}'/>"
                "<target dev='vda'/></disk></devices></domain>"
            )
        lifecycle.undefine(conn, "db1")

    assert ("disk", "web1_data.qcow2") not in shown(built)


@pytest.mark.parametrize("is_away", [True, False])
def test_an_entry_of_the_trash_of_which_not_all_is_known_is_told_from_a_vm(built, is_away):
    built.settings = dataclasses.replace(built.settings, trash_days=3)
    disk = built.root / "far off/disk"
    disk.parent.mkdir()
    disk.write_text("x")
    with trash.fill_trash(built.settings, "web2", reason="a test") as drop:
        drop(verdicts.free(disk))
    (record,) = (reservations.folder(built.settings) / trash.PURPOSE).glob("*.json")
    if is_away:
        disk.parent.rename(built.root / "away")
    else:
        record.write_text("{")
    forget(built)

    said = look(built)

    assert (said.files, said.busy) == ([], [])
    assert [*said.unreadable] == said.unreadable_trash == [record.stem]
    stays(built, *(path_of(built, name) for kind, name in LEFT if kind == "disk"))
