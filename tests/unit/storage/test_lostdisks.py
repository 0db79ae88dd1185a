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


def test_a_pool_that_hosts_share_is_searched(settings, tmp_path, monkeypatch):
    shared = tmp_path / "nfs"
    shared.mkdir()
    (shared / "web_system.qcow2").write_text("x")
    pool = {"path": str(shared), "type": "dir"}
    monkeypatch.setattr(diskpaths.hostfacts, "pools", lambda _conn: {"shared": pool})

    # The name of the pool says nothing: this folder is on a local file system.
    assert lostdisks.find_shared_disks(None, settings, ["web"]) == {}
    assert found(settings, shared, "web") == {"web": ["web_system.qcow2"]}


def test_a_pool_that_the_lost_host_alone_had_is_searched(settings, tmp_path):
    pool = tmp_path / "shared" / "vms"
    (pool / ".salt-virt-trash").mkdir(parents=True)
    (tmp_path / "shared" / "web_root.raw").write_text("x")
    for name in ("web_system.qcow2", "web_notes.txt", "marked.img"):
        (pool / name).write_text("x")
    ownermark.mark(pool / "marked.img", "web", "u-1")
    (tmp_path / "shared" / "link").symlink_to(pool)

    assert found(settings, tmp_path / "shared", "web") == {
        "web": ["web_root.raw", "marked.img", "web_system.qcow2"]
    }


def test_a_shared_path_that_is_no_folder_is_left_out(settings, tmp_path):
    assert found(settings, tmp_path / "missing", "web") == {}
    (tmp_path / "web_system.raw").write_text("x")
    assert found(settings, tmp_path / "web_system.raw", "web") == {}
