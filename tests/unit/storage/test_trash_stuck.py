"""A file of the trash that cannot be removed holds up no other entry, no build and no purge."""

import contextlib
import dataclasses
import errno
from pathlib import Path

import pytest
import verdicts
from saltvirt.core import files
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records
from saltvirt.storage import door, trash, unreadablechains, vmvolumes
from test_trash import older, purged

POOL = "<pool type='dir'><name>p1</name><target><path>{}</path></target></pool>"


@pytest.fixture
def stuck(hypervisor, monkeypatch):
    """A host with two VMs in its trash; the first one's file system has become read-only."""
    hypervisor.settings = dataclasses.replace(hypervisor.settings, trash_days=7)
    for name in ("web1", "web2"):
        with hypervisor.libvirt():
            hypervisor.init(name)
        purged(hypervisor, name)
    usual = files.unlink

    def unlink(path):
        if trash.FOLDER in str(path) and Path(path).name.startswith("web1_"):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        usual(path)

    monkeypatch.setattr(files, "unlink", unlink)
    return hypervisor


def kept(host):
    """Return the VMs of which the trash has anything."""
    return sorted(row["vm"] for row in trash.list_entries(host.settings).values())


def test_a_build_and_a_purge_go_on_and_the_next_entry_goes(stuck):
    older(stuck, 8)
    trash.sweep(stuck.settings)  # that is seen for the first time
    older(stuck, 1)

    with stuck.libvirt():
        stuck.init("web3")
    purged(stuck, "web3")

    assert kept(stuck) == ["web1", "web3"]
    assert stuck.domains() == []


def test_the_others_are_emptied_and_the_one_is_named(stuck):
    line = r"cannot remove .*web1_.*: Read-only file system; emptied: web2-"
    with pytest.raises(StorageError, match=line):
        trash.empty(stuck.settings)

    assert kept(stuck) == ["web1"]


def full(monkeypatch, is_full):
    """Have no folder of the trash be made while a disk is full."""
    usual = records.make_folder

    def make_folder(folder):
        if trash.FOLDER in str(folder) and is_full:
            raise StorageError(f"cannot make the folder {folder}: No space left on device")
        usual(folder)

    monkeypatch.setattr(records, "make_folder", make_folder)


def test_a_purge_on_a_full_disk_names_each_file_and_the_next_leaves_no_entry_stuck(
    hypervisor, monkeypatch
):
    hypervisor.settings = dataclasses.replace(hypervisor.settings, trash_days=7)
    with hypervisor.libvirt():
        hypervisor.init("web1")
    is_full = [True]
    full(monkeypatch, is_full)

    with pytest.raises(StorageError, match="No space left on device.*, .*No space left.*purge it"):
        purged(hypervisor, "web1")
    is_full.clear()
    purged(hypervisor, "web1")

    assert unreadablechains.find_unreadable_entries(hypervisor.settings) == {}
    assert [row["away"] for row in trash.list_entries(hypervisor.settings).values()] == [[]]
    assert hypervisor.files() == []


def test_who_dies_before_a_file_is_on_record_leaves_no_entry_that_is_stuck(hypervisor, monkeypatch):
    path = Path(hypervisor.settings.images) / "disk"
    path.parent.mkdir(exist_ok=True)
    path.write_text("x")
    hypervisor.settings = dataclasses.replace(hypervisor.settings, trash_days=7)

    def dies(*_, **_more):
        raise KeyboardInterrupt

    for kind, name in ((door, "put_away"), (records.LockedRecord, "begin")):
        monkeypatch.setattr(kind, name, dies)
        filling = trash.fill_trash(hypervisor.settings, "web1", reason="a test")
        with pytest.raises(KeyboardInterrupt), filling as drop:
            drop(verdicts.free(path))
        monkeypatch.undo()
    path.unlink()

    assert unreadablechains.find_unreadable_entries(hypervisor.settings) == {}


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_pool_does_not_go_with_the_folder_of_an_entry_that_is_on_record(
    hypervisor, tmp_path, monkeypatch, is_noted
):
    settings = dataclasses.replace(hypervisor.settings, trash_days=7)
    place, path = tmp_path / "p1", tmp_path / "p1/web1_data.qcow2"
    place.mkdir()
    path.write_text("x")

    def cut(*_args, **_given):
        raise SystemExit

    where, what = (door, "put_away") if is_noted else (trash.TrashFiller, "_is_kept")
    monkeypatch.setattr(where, what, cut)
    with pytest.raises(SystemExit), trash.fill_trash(settings, "web1", reason="a test") as drop:
        drop(verdicts.free(path))
    path.unlink()
    with hypervisor.libvirt() as conn:
        pool = conn.storagePoolDefineXML(POOL.format(place))
        pool.create()
        pool.createXML(f"<volume><name>{trash.FOLDER}</name><capacity>1</capacity></volume>")
        said = pytest.raises(StorageError, match="entry 'web1-.* of the trash is of .*trash_empty")
        try:
            with said if is_noted else contextlib.nullcontext():
                vmvolumes.refuse_open(conn, settings, "p1", [trash.FOLDER])
        finally:
            pool.destroy()
            pool.undefine()
