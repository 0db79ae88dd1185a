"""Files of a host that the doctor spares, because a less obvious user may need them."""

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
from test_doctor_facts import (
    LEFT,
    _device,
    assert_not_put_away,
    built,
    look,
    make_old,
    path_of,
    undefine_quietly,
    unused_files,
)

__all__ = ["built"]


def test_a_definition_that_libvirt_did_not_load_protects_all_files(built, monkeypatch, tmp_path):
    definitions = tmp_path / "not-loaded"
    definitions.mkdir()
    (definitions / "web1.xml").write_text((built.definitions / "web1.xml").read_text())
    # The test driver has no files of definitions; QEMU's driver skips unreadable ones.
    monkeypatch.setattr(definitionfiles, "_DEFINITIONS", definitions, raising=False)
    undefine_quietly(built)

    host_facts = look(built)

    assert (host_facts.files, host_facts.busy) == ([], ["web1"])
    assert "web1.xml" in host_facts.unreadable["web1"]
    assert_not_put_away(built, *(path_of(built, name) for kind, name in LEFT if kind == "disk"))


def test_a_loaded_definition_protects_only_its_own_files(built, monkeypatch):
    monkeypatch.setattr(definitionfiles, "_DEFINITIONS", built.definitions, raising=False)

    assert look(built).unreadable == {}


def test_a_host_that_judges_nothing_still_reports_shared_files_in_use(built, monkeypatch):
    path = path_of(built, "web1_data.qcow2")
    monkeypatch.setattr(sharing, "_file_systems_by_device", lambda: {_device(path): "nfs4"})
    broken_record = reservations.folder(built.settings) / "build/web9.json"
    broken_record.parent.mkdir(parents=True, exist_ok=True)
    broken_record.write_text("{")

    assert path in look(built).shared


def test_files_of_another_host_are_not_shown(built, monkeypatch, tmp_path):
    undefine_quietly(built)
    machine_id = tmp_path / "machine-id"
    machine_id.write_text("7" * 32)
    # The test has one machine; another machine id stands for the other one.
    monkeypatch.setattr(ownermark, "_MACHINE", machine_id, raising=False)

    assert unused_files(built) == []


def test_a_hard_link_in_another_folder_is_not_shown(built, tmp_path):
    backup = tmp_path / "backup"
    backup.mkdir()
    os.link(path_of(built, "web1_data.qcow2"), backup / "web1_data.qcow2")

    assert ownermark.read_owner(path_of(built, "web1_data.qcow2")).vm == "web1"
    assert ownermark.read_owner(backup / "web1_data.qcow2") is None


def test_an_existing_disk_that_was_attached_and_detached_is_not_shown(built):
    path = path_of(built, "web1_data.qcow2")
    undefine_quietly(built)
    (built.definitions / "web1.xml").unlink(missing_ok=True)
    with built.libvirt() as conn:
        built.init()
        text = conn.lookupByName("web1").XMLDesc(2)
        root = ET.fromstring(text)
        (disk_element,) = [d for d in root.iter("disk") if d.find("source").get("file") == path]
        root.find("devices").remove(disk_element)
        lifecycle.define(conn, ET.tostring(root, encoding="unicode"))
    for name in built.files():
        make_old(path_of(built, name))

    assert unused_files(built) == []


def test_an_unreadable_entry_of_the_trash_protects_all_files(built):
    undefine_quietly(built)
    broken_record = reservations.folder(built.settings) / trash.PURPOSE / "web9-1.json"
    broken_record.parent.mkdir(parents=True, exist_ok=True)
    broken_record.write_text("{")

    assert unused_files(built) == []
    assert_not_put_away(built, path_of(built, "web1_data.qcow2"))


def test_a_file_that_any_program_has_open_is_not_shown(built):
    undefine_quietly(built)
    path = path_of(built, "web1_data.qcow2")

    # A program that reads or copies a disk without QEMU's locks.
    with open(path, "rb"):
        assert unused_files(built) == LEFT[1:]

    assert unused_files(built) == LEFT


def test_the_file_of_a_loop_device_is_not_shown(built, monkeypatch, tmp_path):
    undefine_quietly(built)
    path = path_of(built, "web1_data.qcow2")
    shown_as = tmp_path / "loop7/loop/backing_file"
    shown_as.parent.mkdir(parents=True)
    shown_as.write_text(path + "\n")
    # A loop device belongs to the whole machine: a test creates none.
    monkeypatch.setattr(unusedfiles, "_BLOCK", tmp_path, raising=False)

    assert unused_files(built) == LEFT[1:]


@pytest.mark.parametrize("how", ["virt.init", "virt.define_xml_str"])
def test_a_disk_that_another_vm_was_given_and_that_was_detached_is_not_shown(built, how):
    path = path_of(built, "web1_data.qcow2")
    undefine_quietly(built)
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

    assert ("disk", "web1_data.qcow2") not in unused_files(built)


@pytest.mark.parametrize("is_away", [True, False])
def test_an_incomplete_entry_of_the_trash_is_told_from_a_vm(built, is_away):
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
    undefine_quietly(built)

    host_facts = look(built)

    assert (host_facts.files, host_facts.busy) == ([], [])
    assert [*host_facts.unreadable] == host_facts.unreadable_trash == [record.stem]
    assert_not_put_away(built, *(path_of(built, name) for kind, name in LEFT if kind == "disk"))
