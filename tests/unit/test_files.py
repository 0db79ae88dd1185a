"""Files are replaced in one step, and what a killed process left is swept, nothing else."""

import os
import pwd
import shutil
import tempfile
from pathlib import Path

import pytest
from saltvirt import files
from saltvirt.fleet import masteruser


def test_a_write_replaces_in_one_step_and_leaves_no_part(tmp_path):
    path = tmp_path / "key.pem"
    files.write(path, b"old")
    before = path.stat().st_ino
    files.write(path, b"new", 0o640)

    assert path.read_bytes() == b"new"
    assert path.stat().st_ino != before
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["key.pem"]


def test_files_that_belong_together_change_only_when_all_are_written(tmp_path):
    files.write(tmp_path / "a", b"old")
    with pytest.raises(FileNotFoundError):
        files.replace([(tmp_path / "a", b"new", 0o600, None),
                       (tmp_path / "gone" / "b", b"new", 0o600, None)])  # fmt: skip

    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_that_cannot_take_its_place_leaves_no_part(tmp_path):
    (tmp_path / "folder").mkdir()

    with pytest.raises(IsADirectoryError):
        files.write(tmp_path / "folder", b"data")

    assert os.listdir(tmp_path) == ["folder"]


def test_a_part_that_cannot_be_written_is_removed(tmp_path, monkeypatch):
    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)

    with pytest.raises(OSError, match="No space left"):
        files.write(tmp_path / "a", b"data")

    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become another user")
def test_a_folder_that_may_be_written_in_and_not_read_is_enough():
    folder = Path(tempfile.mkdtemp(prefix="salt-virt-"))
    folder.chmod(0o1733)
    try:
        with masteruser.acting({"user": "nobody"}):
            files.write(folder / "backup", b"data")
        assert (folder / "backup").stat().st_uid == pwd.getpwnam("nobody").pw_uid
        assert os.listdir(folder) == ["backup"]
    finally:
        shutil.rmtree(folder)


def test_only_the_parts_of_dead_processes_are_swept(tmp_path):
    live = files.part_path(tmp_path, "x")
    live.touch()
    for name in (".999999999-x.part", ".nobody-x.part"):
        (tmp_path / name).touch()
    (tmp_path / "x.part").touch()

    files.sweep(tmp_path)

    assert sorted(os.listdir(tmp_path)) == sorted([live.name, "x.part"])


def test_what_is_opened_privately_is_nobody_elses(tmp_path):
    with open(tmp_path / "secret", "w", opener=files.private) as handle:
        handle.write("s")

    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
