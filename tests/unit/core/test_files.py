"""Files are replaced in one step, and only leftovers of killed processes are removed."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from saltvirt.core import files
from saltvirt.core.salt import masteruser


def test_a_write_replaces_in_one_step_and_leaves_no_part(tmp_path):
    path = tmp_path / "key.pem"
    files.write(path, b"old")
    inode_before = path.stat().st_ino
    files.write(path, b"new", 0o640)

    assert path.read_bytes() == b"new"
    assert path.stat().st_ino != inode_before
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["key.pem"]


def test_files_that_belong_together_change_only_when_all_are_written(tmp_path):
    files.write(tmp_path / "a", b"old")
    with pytest.raises(FileNotFoundError):
        files.replace(
            [(tmp_path / "a", b"new", 0o600, None), (tmp_path / "gone" / "b", b"new", 0o600, None)]
        )

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
        with masteruser.as_master_user({"user": "nobody"}):
            files.write(folder / "backup", b"data")
        assert (folder / "backup").stat().st_uid == pwd.getpwnam("nobody").pw_uid
        assert os.listdir(folder) == ["backup"]
    finally:
        shutil.rmtree(folder)


def test_files_of_other_programs_are_synced_with_their_folders_once(tmp_path, synced):
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")

    files.sync_files([tmp_path / "a", str(tmp_path / "b")])
    files.make_durable(str(tmp_path / "a"))

    folder = (tmp_path.name, ["a", "b"])
    assert synced == [("a", b"1"), ("b", b"2"), folder, ("a", b"1"), folder]


def test_a_missing_file_cannot_be_synced(tmp_path):
    with pytest.raises(FileNotFoundError):
        files.make_durable(tmp_path / "a")


def test_a_removed_file_stays_removed_after_a_crash(tmp_path, synced):
    (tmp_path / "a").touch()

    files.unlink(str(tmp_path / "a"))
    files.unlink(tmp_path / "a")
    files.unlink(tmp_path / "gone" / "a")

    assert synced == [(tmp_path.name, []), (tmp_path.name, [])]


def test_a_file_system_that_cannot_sync_a_folder_is_synced_whole(tmp_path, monkeypatch):
    # A fake: CIFS and some file systems in user space answer so, and the test has none.
    def refused(_handle):
        raise OSError(22, "Invalid argument")

    wholes = []
    monkeypatch.setattr(files.os, "fsync", refused)
    monkeypatch.setattr(files.os, "sync", lambda: wholes.append(True))

    files.sync_folder(tmp_path)

    assert wholes == [True]


def test_only_the_parts_of_dead_processes_are_swept(tmp_path):
    live_part = files.part_path(tmp_path, "x")
    live_part.touch()
    dead_name = live_part.name.replace(f"-{os.getpid()}-", "-999999999-")
    for name in (dead_name, ".nobody-x.part", "x.part"):
        (tmp_path / name).touch()

    files.sweep(tmp_path)

    assert sorted(os.listdir(tmp_path)) == sorted([live_part.name, ".nobody-x.part", "x.part"])


def test_a_part_of_another_host_is_removed_a_day_after_its_last_write(tmp_path, monkeypatch):
    # Releases that did not name the host wrote the second one. Neither process exists here.
    foreign_names = [".0123456789ab-999999999-x.part", ".999999999-x.part"]
    for name in foreign_names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))  # a link to an old file

    files.sweep(tmp_path)
    assert sorted(os.listdir(tmp_path)) == foreign_names

    monkeypatch.setattr(files.time, "time", lambda now=files.time.time: now() + 25 * 3600)
    files.sweep(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_part_of_another_container_counts_as_another_hosts(tmp_path):
    script = (
        "from saltvirt.core import files; import sys; files.part_path(sys.argv[1], 'x').touch()"
    )
    argv = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", script, tmp_path]
    subprocess.run(argv, check=True, env={**os.environ, "PYTHONPATH": ":".join(sys.path)})
    (part,) = tmp_path.iterdir()

    files.sweep(tmp_path)

    assert list(tmp_path.iterdir()) == [part]
    assert part.name.split("-")[0] != files.part_path(tmp_path, "x").name.split("-")[0]


def test_a_private_file_is_usable_while_another_thread_has_a_narrow_umask(
    tmp_path,
):
    before = os.umask(0o277)
    try:
        with open(tmp_path / "lock", "a+", opener=files.private):
            pass
    finally:
        os.umask(before)

    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def test_a_private_file_is_unreadable_for_others(tmp_path):
    with open(tmp_path / "secret", "w", opener=files.private) as handle:
        handle.write("s")

    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_a_name_too_long_for_a_file_has_a_file_name_too(tmp_path):
    """A letter outside ASCII is written as six or nine; libvirt accepts 250 bytes."""
    names = ["web1", "a/b", "Ж" * 125, "Ж" * 124 + "ж", "x" * 250]
    assert [files.to_file_name(name) for name in names[:2]] == ["web1", "a%2Fb"]

    for name in names:
        files.write(tmp_path / f"{files.to_file_name(name)}.json", name.encode())

    assert sorted(path.read_text() for path in tmp_path.iterdir()) == sorted(names)
