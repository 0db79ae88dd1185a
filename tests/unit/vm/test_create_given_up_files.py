"""A file that a build has given up is another host's when it is made anew; no crash takes it."""

import errno
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records
from saltvirt.storage import exclusivecreate
from saltvirt.storage.images import tool
from saltvirt.vm.create.host import apply
from saltvirt.vm.recovery.host import unfinished

DISK = "web1_system.qcow2"


@pytest.fixture
def images(hypervisor):
    """The image folder, which all hosts share."""
    hypervisor.settings = replace(hypervisor.settings, shared_paths=[hypervisor.settings.images])
    return Path(hypervisor.settings.images)


@pytest.fixture
def own(tmp_path):
    """A file system of this host alone, for a disk of web1."""
    (folder := tmp_path / "own").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def kill(*_args, **_given):
    """Die as a process does that is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(*_args, **_given):
    """Fail as a step does."""
    raise StorageError("no space left")


def another_host_makes_web1(images):
    """Make a disk, which must not be there any more."""
    with open(images / DISK, "x") as handle:
        handle.write("another host's")


def test_an_undo_that_is_killed_at_its_end_has_given_its_files_up(hypervisor, images, monkeypatch):
    with monkeypatch.context() as dying:
        dying.setattr(apply, "_define", refuse)
        dying.setattr(records.LockedRecord, "end", kill)
        hypervisor.dies(hypervisor.init)
    another_host_makes_web1(images)

    with hypervisor.libvirt():
        hypervisor.init("other")

    assert (images / DISK).read_text() == "another host's"
    assert [one.name for one in images.glob("*web1*")] == [DISK]


def test_what_a_settling_that_is_killed_has_removed_is_given_up(hypervisor, images, monkeypatch):
    hypervisor.dies(hypervisor.init, "build.defining")

    def settle():
        with hypervisor.libvirt() as conn:
            unfinished.settle(conn, hypervisor.settings)

    with monkeypatch.context() as dying:
        dying.setattr(exclusivecreate, "forget", kill)
        hypervisor.dies(settle)
    another_host_makes_web1(images)
    settle()

    assert (images / DISK).exists() and hypervisor.open_records() == []
    assert list(images.glob(".salt-virt-[0-9a-f]*-*")) == []


def test_an_undo_that_cannot_remove_one_file_has_given_the_others_up(
    hypervisor, images, own, monkeypatch
):
    def make_read_only(*_args):
        subprocess.run(["mount", "-o", "remount,ro", own], check=True)
        raise StorageError("libvirt refuses the definition")

    disks = [{"name": "data", "size": 8, "pool": str(own)}]
    with monkeypatch.context() as failing, hypervisor.libvirt():
        failing.setattr(apply, "_define", make_read_only)
        with pytest.raises(StorageError, match="and not everything that was made"):
            hypervisor.init("web1", disks=disks)
    another_host_makes_web1(images)

    with hypervisor.libvirt():
        hypervisor.init("other")

    assert (images / DISK).exists()
    assert [name for _, name, _ in hypervisor.open_records()] == ["web1"]


def test_a_tool_that_fails_leaves_the_file_to_its_build(hypervisor, images, monkeypatch):
    with monkeypatch.context() as dying:
        dying.setattr(tool, "create", refuse)
        dying.setattr(apply.Builder, "undo", kill)
        hypervisor.dies(hypervisor.init)

    # As long as it is on record its name is not free.
    with pytest.raises(FileExistsError):
        another_host_makes_web1(images)
    with hypervisor.libvirt():
        hypervisor.init("other")
    assert list(images.glob("*web1*")) == []


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_folder_that_is_ill_holds_up_no_other_vm(hypervisor, own, monkeypatch, is_gone):
    folder = own / "disks"
    folder.mkdir()
    disks = [{"name": "data", "size": 8, "pool": str(folder)}]
    with monkeypatch.context() as dying:
        dying.setattr(exclusivecreate, "link_mark", kill)
        hypervisor.dies(lambda: hypervisor.init("web1", disks=disks))
    if is_gone:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        folder.write_text("")
    else:
        subprocess.run(["mount", "-o", "remount,ro", own], check=True)

    with hypervisor.libvirt():
        assert hypervisor.init("other") is True


def test_without_links_what_cannot_be_had_on_record_is_taken_back(hypervisor, images, monkeypatch):
    note = records.LockedRecord.note

    def full(held, **facts):
        if facts.get("begun"):
            raise StorageError("the disk is full")
        note(held, **facts)

    def no_links(*_args):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with monkeypatch.context() as failing, hypervisor.libvirt():
        failing.setattr(records.LockedRecord, "note", full)
        with pytest.raises(StorageError, match="the disk is full"):
            hypervisor.init("web1")
    with hypervisor.libvirt():
        assert hypervisor.init("web1") is True


@pytest.mark.parametrize("call", ["link", "unlink"])
def test_a_call_that_nfs_sends_twice_harms_nobody(hypervisor, images, monkeypatch, call):
    """The answer is lost, and the second one says that there is nothing to do any more."""
    real, error = getattr(os, call), FileExistsError if call == "link" else FileNotFoundError

    def twice(path, *args, **given):
        real(path, *args, **given)
        if ".salt-virt" in str(path):
            raise error(errno.EIO, "sent twice")

    monkeypatch.setattr(os, call, twice)
    with hypervisor.libvirt():
        if call == "link":
            with pytest.raises(StorageError, match="is there already"):
                hypervisor.init("web1")
        else:
            assert hypervisor.init("web1") is True

    assert bool(list(images.glob("*web1*"))) is (call == "unlink")
    assert list(images.glob(".salt-virt-[0-9a-f]*-*")) == []
