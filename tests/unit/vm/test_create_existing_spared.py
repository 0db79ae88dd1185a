"""A disk that is there is not taken where somebody unseen may need it as it is."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import libvirt
import pytest
import verdicts
from saltvirt.core.errors import StorageError
from saltvirt.libvirt.domains import lifecycle
from saltvirt.storage import definitionfiles, ownermark, trash
from saltvirt.vm.create.host import create
from snapshotxml import DISK, SNAPSHOT, VM
from test_create_existing_disks import digest, disk


@pytest.mark.parametrize("is_given_a_path", [True, False])
def test_what_an_overlay_is_based_on_is_not_written_to(hypervisor, is_given_a_path):
    """A VM with an external snapshot was undefined: its newest data are in the overlay."""
    images = Path(hypervisor.settings.images)
    had = disk(images / "web1_data.qcow2")
    below = images / "web1_data.qcow2" if is_given_a_path else "web1_data.qcow2"
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", below]
    subprocess.run([*argv, images / "web1_data.snap1"], check=True)

    with hypervisor.libvirt(), pytest.raises(StorageError, match="web1_data.snap1 is based on it"):
        hypervisor.init()

    assert (hypervisor.domains(), hypervisor.open_records()) == ([], [])
    assert digest(images / "web1_data.qcow2") == had


def based(base, name):
    """Make a disk over another one."""
    top = base.with_name(name)
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base]
    subprocess.run([*argv, top], check=True)
    return top


def given(hypervisor, path):
    """Give a file to a new VM as its disk."""
    hypervisor.init("web9", disks=[{"name": "data", "source_file": str(path)}])


def test_what_a_disk_in_the_trash_is_based_on_is_given_to_nobody(hypervisor, tmp_path):
    hypervisor.settings = replace(hypervisor.settings, trash_days=7)
    base = tmp_path / "template.qcow2"
    had = disk(base)
    with trash.fill_trash(hypervisor.settings, "web1", reason="a test") as drop:
        drop(verdicts.free(based(base, "web1_data.qcow2")))

    with hypervisor.libvirt():
        with pytest.raises(
            StorageError, match=r"template.qcow2 would be written .*entry web1-\w+. is based on it"
        ):
            given(hypervisor, base)
        assert (hypervisor.domains(), digest(base)) == ([], had)
        trash.empty(hypervisor.settings)
        given(hypervisor, base)


def test_what_an_external_snapshot_goes_back_to_is_given_to_nobody(hypervisor, tmp_path):
    base = tmp_path / "old.qcow2"
    disk(base)
    with hypervisor.libvirt() as conn:
        vm = conn.defineXML(VM.format(DISK.format(base)))
        text = SNAPSHOT.format(tmp_path / "old.s1", vm.XMLDesc())
        vm.snapshotCreateXML(text, libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_REDEFINE)
        # It has the disk no more, and is to have it again by that snapshot.
        conn.defineXML(VM.format(""))

        with pytest.raises(
            StorageError, match="old.qcow2 would be written .*a snapshot of VM 'web1' needs it"
        ):
            given(hypervisor, base)
        vm.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA)
        given(hypervisor, base)


def test_a_hard_link_of_another_vms_disk_is_not_taken(hypervisor):
    images = Path(hypervisor.settings.images)
    with hypervisor.libvirt():
        hypervisor.init("web2")
        os.link(images / "web2_data.qcow2", images / "web1_data.qcow2")

        with pytest.raises(StorageError, match="is a hard link of .*web2_data.qcow2, and what"):
            hypervisor.init()

        (images / "web1_data.qcow2").unlink()
        hypervisor.init()


def test_nor_is_one_of_what_another_vms_disk_is_based_on(hypervisor, tmp_path):
    base = tmp_path / "base.qcow2"
    disk(base)
    with hypervisor.libvirt() as conn:
        conn.defineXML(VM.format(DISK.format(based(base, "top.qcow2"))))
        os.link(base, tmp_path / "other")

        with pytest.raises(
            StorageError, match="other would be written .*a hard link of .*base.qcow2, and"
        ):
            given(hypervisor, tmp_path / "other")

        conn.lookupByName("web1").undefine()


def test_nothing_is_taken_while_libvirt_has_not_loaded_a_vm(hypervisor, monkeypatch, tmp_path):
    had = disk(Path(hypervisor.settings.images) / "web1_data.qcow2")
    kept = tmp_path / "not-loaded"
    kept.mkdir()
    (kept / "old1.xml").touch()
    # The test driver has no files of its own; QEMU's skips one that it cannot read.
    monkeypatch.setattr(definitionfiles, "_DEFINITIONS", kept)

    with hypervisor.libvirt(), pytest.raises(StorageError, match="has not loaded .*old1.xml"):
        hypervisor.init()

    assert hypervisor.files() == ["web1_data.qcow2"]
    assert digest(Path(hypervisor.settings.images) / "web1_data.qcow2") == had


def test_nothing_is_written_over_a_definition_that_libvirt_has_not_loaded(
    hypervisor, monkeypatch, tmp_path
):
    kept = tmp_path / "not-loaded"
    kept.mkdir()
    (kept / "web1.xml").write_text("<what only a newer libvirt reads/>")
    monkeypatch.setattr(definitionfiles, "_DEFINITIONS", kept)

    with hypervisor.libvirt(), pytest.raises(StorageError, match="'web1' may be on this host"):
        hypervisor.init()

    assert (hypervisor.domains(), hypervisor.files(), hypervisor.open_records()) == ([], [], [])


@pytest.mark.parametrize("is_declared", [True, False])
def test_what_another_host_may_have_under_another_name_is_not_taken(
    hypervisor, monkeypatch, tmp_path, is_declared
):
    """A VM of another host was renamed there, and is off; a new one gets its old name here."""
    images = hypervisor.settings.images
    with hypervisor.libvirt() as conn:
        hypervisor.init()
        lifecycle.undefine(conn, "web1")
    had = {name: digest(Path(images) / name) for name in hypervisor.files()}
    if is_declared:
        hypervisor.settings = replace(hypervisor.settings, shared_paths=[images])
    else:
        here = tmp_path / "machine-id"
        here.write_text("7" * 32)
        # There is one machine here; the one that has made it has another number.
        monkeypatch.setattr(ownermark, "_MACHINE", here)

    context = replace(hypervisor.context, is_ordered=True)
    with hypervisor.libvirt(), pytest.raises(StorageError, match="it was made for VM 'web1'"):
        unseeded = {"pub_key": None, "priv_key": None, "seed": False}
        create.create(context, hypervisor.deployment(**unseeded))

    assert {name: digest(Path(images) / name) for name in hypervisor.files()} == had
