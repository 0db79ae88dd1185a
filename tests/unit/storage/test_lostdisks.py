"""The files of a lost host's VMs are found on storage that hosts share, by mark or by name."""

from dataclasses import replace
from pathlib import Path

import pytest
from saltvirt.storage import diskpaths, lostdisks, ownermark


@pytest.fixture
def folder(settings):
    """The image folder of a host."""
    made = Path(settings.images)
    made.mkdir(parents=True, exist_ok=True)
    return made


def found(settings, folder, *names):
    """Return ``{VM: names of files}`` that a host with a shared image folder finds."""
    shared = replace(settings, shared_paths=[str(folder)])
    disks = lostdisks.find_shared_disks(None, shared, names)
    return {name: [Path(disk.path).name for disk in disks[name]] for name in disks}


@pytest.fixture(autouse=True)
def no_pools(monkeypatch):
    """A host without pools."""
    monkeypatch.setattr(diskpaths.hostfacts, "pools", lambda _conn: {})


def test_a_file_is_a_vms_by_its_mark_else_by_its_name(settings, folder):
    for name in ("web_system.qcow2", "web_1_system.qcow2", "old_data.raw", "web_1_seed.iso.qcow2"):
        (folder / name).write_text("x")
    ownermark.mark(folder / "old_data.raw", "web", "u-1")
    (folder / "web_link.raw").symlink_to(folder / "old_data.raw")
    (folder / "web_folder").mkdir()

    assert found(settings, folder, "web", "web_1") == {
        "web": ["old_data.raw", "web_system.qcow2"],
        "web_1": ["web_1_system.qcow2"],
    }


def test_a_marked_file_of_another_vm_is_not_named_by_its_name(settings, folder):
    (folder / "web_system.qcow2").write_text("x")
    ownermark.mark(folder / "web_system.qcow2", "renamed", "u-1")

    assert found(settings, folder, "web") == {}


def test_what_no_other_host_sees_is_not_found(settings, folder):
    (folder / "web_system.qcow2").write_text("x")

    assert lostdisks.find_shared_disks(None, settings, ["web"]) == {}
