"""Images: validated before anything opens them, kept once per content, cloned without loss."""

import hashlib
import json
import os
import shutil
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from fetching import obtain
from hypothesis import given, settings
from hypothesis import strategies as st
from saltvirt.core import files, writelimit
from saltvirt.core.errors import BadArgument, ImageError, StorageError
from saltvirt.core.model import Disk
from saltvirt.core.options.config import HostSettings
from saltvirt.core.units import MIB
from saltvirt.storage.images import cache, clone, qcow2, removal, source, validation

DISK = Disk(name="system", target="vda", size_mib=64)
ROOM = writelimit.from_settings(HostSettings())


def qemu_img(*words):
    """Run qemu-img, as an attacker or a user would have."""
    subprocess.run(["qemu-img", *map(str, words)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    """A good qcow2 image with something in it, which is copied."""
    folder = tmp_path_factory.mktemp("good")
    raw, path = folder / "data.raw", folder / "good.qcow2"
    raw.write_bytes(b"\xeb\x3c" + os.urandom(100_000).ljust(MIB, b"\0"))
    qemu_img("convert", "-f", "raw", "-O", "qcow2", raw, path)
    return path


@pytest.fixture
def image(tmp_path, made_once):
    """A good qcow2 image with something in it, the test's own."""
    return Path(shutil.copy(made_once, tmp_path))


@pytest.fixture
def raw_disk(tmp_path):
    """A raw disk: a boot sector and holes."""
    path = tmp_path / "disk.raw"
    with path.open("wb") as handle:
        handle.write(bytes(510) + b"\x55\xaa")
        handle.truncate(8 * MIB)
        handle.seek(5 * MIB)
        handle.write(b"end")
    return path


def test_a_good_image_is_what_it_is(image, raw_disk):
    assert (validation.validate(image).format, validation.validate(image).size_bytes) == (
        "qcow2",
        MIB + 512,
    )
    assert (validation.validate(raw_disk).format, validation.validate(raw_disk).size_bytes) == (
        "raw",
        8 * MIB,
    )


def test_an_image_that_names_another_file_of_the_host_is_never_followed(tmp_path, image):
    evil, linked = tmp_path / "evil.qcow2", tmp_path / "linked.qcow2"
    qemu_img("create", "-f", "qcow2", "-u", "-b", "/etc/shadow", "-F", "raw", evil, "1M")
    qemu_img("create", "-f", "qcow2", "-b", image, "-F", "qcow2", linked)

    for path in (evil, linked):
        with pytest.raises(ImageError, match="names a backing file .* never followed"):
            validation.validate(path)


def test_an_image_with_an_external_data_file_is_refused(tmp_path):
    path = tmp_path / "data-file.qcow2"
    qemu_img("create", "-f", "qcow2", "-o", f"data_file={tmp_path / 'secret'}", path, "1M")

    with pytest.raises(ImageError, match="external data file"):
        validation.validate(path)


def test_a_truncated_image_is_refused(image, raw_disk):
    with image.open("r+b") as handle:
        handle.truncate(image.stat().st_size // 2)

    with pytest.raises(ImageError, match=r"truncated|damaged"):
        validation.validate(image)


def test_an_image_that_nobody_has_written_to_is_whole(tmp_path):
    path = tmp_path / "empty.qcow2"
    qemu_img("create", "-f", "qcow2", path, "8M")

    assert validation.validate(path).size_bytes == 8 * 2**20


def test_a_raw_disk_whose_partitions_reach_past_its_end_is_refused(tmp_path):
    path = tmp_path / "disk.raw"
    entry = b"\x80\0\0\0\x83\0\0\0" + (2048).to_bytes(4, "little") + (10**6).to_bytes(4, "little")
    path.write_bytes((bytes(446) + entry + bytes(48) + b"\x55\xaa").ljust(MIB, b"\0"))

    with pytest.raises(ImageError, match="truncated: its partitions end"):
        validation.validate(path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"#!/bin/sh\necho hello\n" * 100, "not a disk image"),
        (b"", "not a disk image"),
        (b"\x1f\x8b" + bytes(1000), "is gzip, .*; unpack it with gunzip$"),
        (b"\xfd7zXZ\0" + bytes(1000), "is xz, .*; unpack it with unxz$"),
        (b"KDMV" + bytes(1000), "is VMDK, .*; convert it with qemu-img convert -O qcow2$"),
        (b"QFI\xfb" + bytes(10), "truncated inside its qcow2 header"),
        (b"QFI\xfb\0\0\0\x09" + bytes(200), "qcow version 9"),
    ],
)
def test_what_is_no_disk_image_is_refused_with_its_kind(tmp_path, content, why):
    path = tmp_path / "x.img"
    path.write_bytes(content)

    with pytest.raises(ImageError, match=why):
        validation.validate(path)


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(ImageError, match="does not exist"):
        validation.validate(tmp_path / "missing")
    with pytest.raises(ImageError, match="is not a regular file"):
        validation.validate(tmp_path)


def test_no_bytes_make_the_header_reader_fail_otherwise(tmp_path):
    path = tmp_path / "x"

    @settings(max_examples=300, deadline=None)
    @given(st.binary(max_size=2048), st.booleans())
    def looked_at(data, with_magic):
        path.write_bytes((b"QFI\xfb" if with_magic else b"") + data)
        try:
            qcow2.read(path)
        except ImageError as refused:
            assert "\n" not in str(refused)

    looked_at()


def test_the_header_agrees_with_qemu_img(tmp_path, image):
    overlay = tmp_path / "o.qcow2"
    qemu_img("create", "-f", "qcow2", "-b", image, "-F", "qcow2", overlay, "3M")
    info = json.loads(subprocess.check_output(["qemu-img", "info", "--output=json", overlay]))

    header = qcow2.read(overlay)

    assert header.size_bytes == info["virtual-size"] == 3 * MIB
    assert header.backing_file == info["backing-filename"]


@pytest.mark.parametrize("enable_qcow", [True, False, None])
def test_a_clone_reads_as_its_image_and_has_the_profiles_size(tmp_path, image, enable_qcow):
    base, path = validation.validate(image), tmp_path / "clone"

    how = clone.plan(DISK, base, enable_qcow)
    clone.make(base, path, how, ROOM)

    assert how["is_overlay"] == (enable_qcow is not False)
    assert qcow2.read(path).size_bytes == 64 * MIB
    assert path.stat().st_mode & 0o777 == 0o600
    qemu_img("convert", "-O", "raw", path, tmp_path / "now.raw")
    qemu_img("convert", "-O", "raw", image, tmp_path / "was.raw")
    was = (tmp_path / "was.raw").read_bytes()
    assert (tmp_path / "now.raw").read_bytes()[: len(was)] == was


def test_a_raw_copy_keeps_its_holes(tmp_path, raw_disk):
    base, path = validation.validate(raw_disk), tmp_path / "copy.raw"

    clone.make(base, path, clone.plan(DISK, base, None), ROOM)

    assert path.read_bytes()[: 8 * MIB] == raw_disk.read_bytes()
    assert path.stat().st_size == 64 * MIB
    assert path.stat().st_blocks * 512 < MIB


def test_a_raw_image_can_be_the_base_of_an_overlay(tmp_path, raw_disk):
    base, path = validation.validate(raw_disk), tmp_path / "o.qcow2"

    clone.make(base, path, clone.plan(DISK, base, True), ROOM)

    assert qcow2.read(path).backing_file == str(raw_disk)


def test_a_disk_is_never_shrunk(image):
    base = replace(validation.validate(image), size_bytes=100 * MIB)
    asked = replace(DISK, is_sized_by_user=True)

    assert clone.plan(DISK, base, None)["size_bytes"] == 100 * MIB
    with pytest.raises(BadArgument, match="never shrunk"):
        clone.plan(asked, base, None)


def test_contradictions_are_refused(image):
    base = validation.validate(image)

    with pytest.raises(BadArgument, match="overlay is always qcow2"):
        clone.plan(replace(DISK, format="raw"), base, True)
    with pytest.raises(BadArgument, match="vmdk"):
        clone.plan(replace(DISK, format="vmdk"), base, None)


def test_a_disk_that_cannot_be_written_leaves_nothing(tmp_path, image):
    path = tmp_path / "no-such-folder" / "disk"

    with pytest.raises(StorageError, match="cannot create disk"):
        base = validation.validate(image)
        clone.make(base, path, clone.plan(DISK, base, None), ROOM)

    assert not path.exists()


def test_an_image_is_on_the_disk_before_it_is_noted_that_it_is_there(host, image, synced):
    got = obtain(host, image)

    contents = [content for _name, content in synced]
    digest = hashlib.sha256(image.read_bytes()).hexdigest()
    at = contents.index(image.read_bytes())
    # Before it has its name, too: else it could be cut off with that, and without a note.
    assert f"{digest}.qcow2" not in synced[at + 1][1]
    assert f"{digest}.qcow2" in synced[at + 2][1]
    assert f"{digest}.json" not in synced[at + 2][1]
    assert synced[-1] == ("base", sorted(os.listdir(cache.ensure_folder(host))))
    assert got.path == str(cache.ensure_folder(host) / f"{digest}.qcow2")


def contents(host):
    """Return the names in the cache, the index aside."""
    return sorted(set(os.listdir(f"{host.images}/base")) - {"index.json"})


def test_a_content_is_kept_once_whatever_its_name(tmp_path, host, image):
    twin = tmp_path / "twin.qcow2"
    twin.write_bytes(image.read_bytes())

    first, second, third = (obtain(host, i) for i in (image, twin, f"file://{image}"))

    assert first == second == third
    assert len(contents(host)) == 2


def test_what_is_here_as_the_caller_says_is_not_asked_for(host, image, monkeypatch):
    there = obtain(host, image)
    (digest,) = {one.partition(".")[0] for one in contents(host)}

    def refuses(*_given):
        raise ImageError("it was asked for")

    monkeypatch.setattr(source, "known_digest", refuses)

    assert obtain(host, "salt://image", digest=digest) == there
    for unknown in (None, "0" * 64, f"../base/{digest}"):
        with pytest.raises(ImageError, match="it was asked for"):
            obtain(host, "salt://image", digest=unknown)


def test_a_changed_image_is_another_content_and_the_old_one_stays(host, image, raw_disk):
    old = obtain(host, image)
    image.write_bytes(raw_disk.read_bytes())

    new = obtain(host, image)

    assert new.path != old.path
    assert os.path.exists(old.path)


def test_a_bad_image_never_enters_the_cache(tmp_path, host):
    bad = tmp_path / "bad.img"
    bad.write_text("no image at all" * 1000)

    with pytest.raises(ImageError, match=f"image {bad} is not a disk image"):
        obtain(host, bad)

    assert contents(host) == []


def test_a_base_that_somebody_wrote_to_is_not_cloned_again(host, image):
    found = obtain(host, image)
    with open(found.path, "ab") as handle:
        handle.write(b"x")

    with pytest.raises(ImageError, match="was changed after it was fetched"):
        obtain(host, image)


def test_fetches_that_were_killed_are_swept(host, image):
    obtain(host, image)
    dead = subprocess.Popen(["true"])
    dead.wait()
    live = files.part_path(cache.ensure_folder(host), "1")
    left = live.with_name(live.name.replace(f"-{os.getpid()}-", f"-{dead.pid}-"))
    other = live.with_name(f".0123456789ab-{dead.pid}-1.part")
    for path in (left, live, other):
        path.touch()

    removal.sweep(host)

    assert (left.exists(), live.exists(), other.exists()) == (False, True, True)


def test_many_at_once_fetch_once(host, image):
    results, threads = [], []
    for _ in range(8):
        threads.append(threading.Thread(target=lambda: results.append(obtain(host, image))))
        threads[-1].start()
    for thread in threads:
        thread.join()

    assert len(results) == 8 and len(set(results)) == 1


@pytest.mark.parametrize("kind", ["sha256", "sha512", "md5"])
def test_a_checksum_is_verified_before_anything_reads_the_image(host, image, kind, monkeypatch):
    right = hashlib.new(kind, image.read_bytes()).hexdigest()
    read = []

    def validate(path):
        read.append(path)
        return validation.validate(path)

    def get(hsum):
        expected = {"hash_type": kind, "hsum": hsum}
        return cache.obtain(
            str(image),
            saltenv="base",
            settings=host,
            opts={},
            validate=validate,
            progress=lambda *_: None,
            expected=expected,
        )

    with pytest.raises(ImageError, match=f"not what image_hash says: its {kind} is {right[:16]}"):
        get("0" * len(right))
    assert read == []
    assert get(right.upper()) == get(right)
    with pytest.raises(ImageError, match="not what image_hash says"):
        get("f" * len(right))  # also of what is cached already


def test_what_an_images_snapshots_hide_is_not_kept(host, image):
    qemu_img("snapshot", "-c", "before", image)
    assert validation.validate(image).has_snapshots

    got = obtain(host, str(image))

    assert not validation.validate(got.path).has_snapshots
    qemu_img("compare", "-f", "qcow2", "-F", "qcow2", image, got.path)
    assert obtain(host, str(image)) == got


def test_an_image_that_says_it_is_huge_is_refused(host, tmp_path):
    bomb = tmp_path / "bomb.qcow2"
    qemu_img("create", "-f", "qcow2", bomb, "1P")

    with pytest.raises(ImageError, match="says that it is 1024.0T large; the most is 2.0T"):
        obtain(host, str(bomb))
    assert contents(host) == []


@pytest.mark.parametrize("bad", ["ftp://x/y", "file://relative", "gopher:/x"])
def test_other_kinds_of_sources_are_refused(bad):
    with pytest.raises(BadArgument, match="is not an image"):
        source.kind(bad)
