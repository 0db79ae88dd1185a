"""A golden image is a file of its own: what is written to it never reaches the disks of VMs."""

import errno
import json
import os
import subprocess
from pathlib import Path

import pytest
from saltvirt.core import writelimit
from saltvirt.core.options.config import HostSettings
from saltvirt.storage.images import cache, clone, hardlinks, validation


def qemu_img(*words):
    subprocess.run(["qemu-img", *words], check=True, capture_output=True)


def image(path, text):
    """Make a qcow2 image that begins with a text."""
    raw = path.with_suffix(".raw")
    raw.write_bytes(text + bytes(1024 * 1024 - len(text)))
    qemu_img("convert", "-f", "raw", "-O", "qcow2", raw, path)
    raw.unlink()
    return path


def content(disk):
    """Return the first bytes that a guest reads from its disk."""
    raw = disk.with_suffix(".read")
    qemu_img("convert", "-f", "qcow2", "-O", "raw", disk, raw)
    return raw.read_bytes()[:10]


@pytest.fixture
def host(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "served").mkdir()
    return HostSettings(
        images=str(tmp_path / "images"), state_dir=str(tmp_path / "state"), disk_reserve_mib=1
    )


@pytest.fixture
def golden(tmp_path):
    """A golden image on the file server."""
    return image(tmp_path / "served" / "web.qcow2", b"GOLDEN ONE")


def overlay(host, digest):
    """Make the disk of a VM that is based on a cached image."""
    base, disk = Path(cache.find(host, digest).path), Path(host.images) / "web1_system.qcow2"
    qemu_img("create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, disk)
    return base, disk


def linked_as_before(host, golden):
    """Have a golden image and the cached image be one file, as earlier releases did."""
    digest = cache.adopt(host, golden, validation.validate(golden))
    base, note = (
        Path(cache.find(host, digest).path),
        cache.note_path(cache.folder_path(host), digest),
    )
    known = json.loads(note.read_text())
    base.unlink()
    os.link(golden, base)
    known["stat"] = [base.stat().st_size, base.stat().st_mtime_ns]
    del known["is_golden"]
    note.write_text(json.dumps(known))
    return digest


def test_a_golden_image_is_never_a_hard_link_of_a_cached_one(host, golden):
    digest = cache.adopt(host, golden, validation.validate(golden))

    kept = Path(cache.find(host, digest).path)

    assert not kept.samefile(golden)
    assert (kept.stat().st_nlink, golden.stat().st_nlink) == (1, 1)
    assert kept.read_bytes() == golden.read_bytes()
    assert oct(kept.stat().st_mode & 0o777) == "0o644"


@pytest.mark.parametrize("command", ["cp", "dd"])
def test_a_newer_image_is_copied_over_a_golden_one(host, golden, tmp_path, command):
    base, disk = overlay(host, cache.adopt(host, golden, validation.validate(golden)))
    newer = image(tmp_path / "newer.qcow2", b"GOLDEN TWO")
    words = {"cp": ["cp", newer, golden], "dd": ["dd", f"if={newer}", f"of={golden}"]}[command]

    subprocess.run(words, check=True, capture_output=True)

    assert content(disk) == b"GOLDEN ONE"
    assert cache.find(host, base.stem) is not None, "the cached image has not changed"


def test_without_room_for_a_copy_nothing_is_left_in_the_cache(host, golden, monkeypatch):
    # A file system without reflink, and a full one: neither can be had everywhere.
    monkeypatch.setattr(
        clone.fcntl, "ioctl", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOTTY, "no"))
    )
    monkeypatch.setattr(writelimit, "read_space", lambda _path: (1 << 40, 1 << 20))

    with pytest.raises(writelimit.OverLimit, match="no room for image .*web.qcow2"):
        cache.adopt(host, golden, validation.validate(golden))

    assert (
        [*cache.folder_path(host).glob("*.qcow2*")]
        == [*cache.folder_path(host).glob("*.part*")]
        == []
    )


def test_golden_images_of_earlier_releases_get_a_file_of_their_own(host, golden, tmp_path):
    digest = linked_as_before(host, golden)
    base, disk = overlay(host, digest)
    golden.chmod(0o640)
    assert [one.golden for one in hardlinks.find_linked_images(host)] == [str(golden)]
    inode, stat = base.stat().st_ino, golden.stat()

    hardlinks.separate(host)

    assert base.stat().st_ino == inode, "the disks of VMs are based on it"
    assert not golden.samefile(base)
    assert golden.stat().st_mode == stat.st_mode
    assert [*hardlinks.find_linked_images(host)] == []
    assert sorted(golden.parent.iterdir()) == [golden]
    subprocess.run(["cp", image(tmp_path / "newer.qcow2", b"GOLDEN TWO"), golden], check=True)
    assert content(disk) == b"GOLDEN ONE"
    assert cache.find(host, digest) is not None


def test_a_golden_image_that_cannot_be_copied_stays_and_is_named(host, golden, monkeypatch, caplog):
    linked_as_before(host, golden)
    monkeypatch.setattr(
        clone.fcntl, "ioctl", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOTTY, "no"))
    )
    monkeypatch.setattr(writelimit, "read_space", lambda _path: (1 << 40, 1 << 20))

    hardlinks.separate(host)

    assert [one.golden for one in hardlinks.find_linked_images(host)] == [str(golden)]
    assert f"{golden} stays one file with" in caplog.text
    assert sorted(golden.parent.iterdir()) == [golden]


def test_another_name_of_a_cached_image_is_known_though_nobody_knows_which(host, golden, tmp_path):
    digest = cache.adopt(host, golden, validation.validate(golden))
    os.link(cache.find(host, digest).path, tmp_path / "backup.qcow2")

    hardlinks.separate(host)

    (found,) = hardlinks.find_linked_images(host)
    assert (found.digest, found.golden) == (digest, None)


@pytest.mark.parametrize("is_link", [True, False])
def test_a_golden_image_is_told_from_other_files(host, golden, tmp_path, is_link):
    if is_link:
        linked_as_before(host, golden)
    else:
        cache.adopt(host, golden, validation.validate(golden))
    other = image(tmp_path / "other.qcow2", b"OTHER")

    assert cache.is_golden_or_link(host, golden)
    assert not cache.is_golden_or_link(host, other)
    assert not cache.is_golden_or_link(host, tmp_path / "gone")
