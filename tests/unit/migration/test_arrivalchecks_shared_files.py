"""A shared disk is the same file on both hosts, or the VM does not move."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from saltvirt.migration.host import arrivalchecks
from saltvirt.vm.show.host import migrationinfo


@pytest.fixture
def moving(end, conn, tmp_path, monkeypatch):
    """The migration info of a VM with a shared disk, when its move has begun."""
    folder = tmp_path / "shared"
    folder.mkdir()
    path = folder / "web1.raw"
    path.write_bytes(bytes(100))
    end.settings = replace(end.settings, shared_paths=(str(folder),))
    end.hypervisor.settings = end.settings
    end.define(conn, paths=[path])
    return end.begin()


def _reasons(end, conn, moving):
    return [
        reason
        for reason in arrivalchecks.check(conn, end.settings, moving)
        if "not the one" in reason
    ]


def test_a_file_of_the_same_number_is_the_same(end, conn, moving):
    (disk,) = moving.disks
    assert disk.how == "shared" and disk.inode == os.stat(disk.path).st_ino
    assert [Path(mark).parent for mark in moving.marks] == [Path(disk.path).parent]
    assert _reasons(end, conn, moving) == []


def test_an_old_file_below_the_mount_point_is_another_one(end, conn, moving):
    (disk,) = moving.disks
    for mark in moving.marks:
        Path(mark).unlink()  # on the target nothing is mounted there
    old_file = replace(moving, disks=[replace(disk, inode=disk.inode + 1)])

    (reason,) = _reasons(end, conn, old_file)

    assert reason.startswith(f"the file {disk.path} there is not the one that the VM has; is the ")
    # Before a move has begun no file is marked, and inode numbers alone prove nothing.
    assert _reasons(end, conn, replace(old_file, marks=None)) == []


def test_where_each_host_numbers_files_by_itself_the_mark_tells(end, conn, moving):
    (disk,) = moving.disks
    renumbered = replace(moving, disks=[replace(disk, inode=disk.inode + 1)])

    assert _reasons(end, conn, renumbered) == []
    # A path elsewhere and a file of another kind are no marks.
    assert _reasons(end, conn, replace(renumbered, marks=["/etc/passwd", disk.path])) != []


def test_a_device_has_no_number_that_two_hosts_have(end):
    assert migrationinfo.inode("/dev/null") is None and migrationinfo.inode("/none") is None


@pytest.mark.parametrize("outcome", ["sent", "cancelled"])
def test_no_mark_is_left(end, conn, moving, outcome):
    assert all(map(os.path.exists, moving.marks))

    if outcome == "sent":
        end.send()
    else:
        end.step("cancel", seen="planned", is_refused=False)

    assert not any(map(os.path.exists, moving.marks))
    info = migrationinfo.gather(conn, end.settings, "web1")["web1"]
    assert info.marks is None
