"""Only its owner may read a file that libvirt makes for a VM's disk."""

import pytest
from saltvirt.libvirt.domains import domainfiles, lifecycle


@pytest.fixture
def paths(monkeypatch, tmp_path):
    """Return the disks of a VM, which change while a snapshot is taken."""
    disk_paths = [str(tmp_path / "web1.qcow2")]
    (tmp_path / "web1.qcow2").touch(0o644)
    # The test driver takes no external snapshots.
    monkeypatch.setattr(lifecycle, "file_paths", lambda _conn, _name: list(disk_paths))
    return disk_paths


def mode(path):
    return path.stat().st_mode & 0o7777


def test_a_file_in_which_a_disk_goes_on_is_private(paths, tmp_path):
    with domainfiles.restrict_new_files(None, "web1"):
        new = tmp_path / "web1.s1"
        new.touch(0o644)
        paths[:] = [str(new), str(tmp_path / "gone")]

    assert mode(new) == 0o600
    # A file that existed before keeps its mode.
    assert mode(tmp_path / "web1.qcow2") == 0o644


def test_a_new_file_is_private_also_if_the_snapshot_fails_after_it(paths, tmp_path):
    new = tmp_path / "web1.s1"
    with pytest.raises(ValueError, match="no"), domainfiles.restrict_new_files(None, "web1"):
        new.touch(0o664)
        paths.append(str(new))
        raise ValueError("no")

    assert mode(new) == 0o600


def test_a_file_is_open_to_others_if_each_folder_lets_them_in(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir(0o711)
    file = folder / "a"
    file.touch(0o644)
    parents = [parent for parent in folder.parents if not parent.stat().st_mode & 0o001]
    for parent in parents:
        parent.chmod(0o711)

    assert domainfiles.is_world_readable(str(file))
    folder.chmod(0o700)
    assert not domainfiles.is_world_readable(str(file))
    folder.chmod(0o711)
    file.chmod(0o640)
    assert not domainfiles.is_world_readable(str(file))
    assert not domainfiles.is_world_readable(str(folder / "missing"))
