"""Who uses a cached image: VMs by their disks, and overlays that belong to nobody."""

import dataclasses
import hashlib
import os
import struct
import subprocess

import libvirt
import pytest
from saltvirt.core.errors import BadArgument, ImageError, StorageError
from saltvirt.core.model import Requirements
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import reservations
from saltvirt.storage import diskpaths, policies, usage
from saltvirt.storage.images import cache, cachedimages, removal, validation

DOMAIN = """<domain type='test'><name>{name}</name><memory unit='MiB'>64</memory>
<os><type>hvm</type></os><devices><disk type='file' device='disk'>{driver}<source file='{disk}'/>
<target dev='vda'/></disk></devices></domain>"""
BOOTS = """<domain type='test'><name>direct</name><memory unit='MiB'>64</memory>
<os><type>hvm</type><kernel>{kernel}</kernel></os></domain>"""
POOL = "<pool type='dir'><name>fast</name><target><path>{}</path></target></pool>"
RAW, QCOW2 = (f"<driver name='qemu' type='{fmt}'/>" for fmt in ("raw", "qcow2"))


def qemu_img(*words):
    """Run qemu-img."""
    subprocess.run(["qemu-img", *map(str, words)], check=True, capture_output=True)


@pytest.fixture
def host(tmp_path):
    """A host with one cached image: settings, connection, digest, path of the image."""
    source = tmp_path / "source.qcow2"
    qemu_img("create", "-f", "qcow2", source, "8M")
    settings = HostSettings(images=str(tmp_path / "images"), state_dir=str(tmp_path / "state"))
    got = cache.obtain(
        str(source), saltenv="base", settings=settings, opts={}, progress=lambda _done, _total: None
    )
    conn = libvirt.open("test:///default")
    yield settings, conn, hashlib.sha256(source.read_bytes()).hexdigest(), got.path
    conn.close()


def overlay(path, base):
    """Make an overlay."""
    path.parent.mkdir(parents=True, exist_ok=True)
    qemu_img("create", "-f", "qcow2", "-F", "qcow2", "-b", base, path)
    return path


def test_nobody_uses_it_and_it_is_removed_with_its_notes(host):
    settings, conn, digest, path = host
    cache.inspection_path(settings, digest).write_text("{}")
    size = cache.read_notes(settings)[digest]["stat"][0]
    assert cachedimages.prune(conn, settings, None, is_dry=True)["removed"] == {digest: size}
    assert cache.find(settings, digest)

    done = cachedimages.prune(conn, settings, None, is_dry=False)

    assert done == {"removed": {digest: size}, "kept": {}}
    assert [p.name for p in cache.ensure_folder(settings).iterdir() if digest in p.name] == []


def test_a_disk_that_another_host_makes_meanwhile_keeps_its_image(host, tmp_path, monkeypatch):
    settings, conn, digest, path = host
    looks = cachedimages.find_users

    def seen(*args):
        found = looks(*args)
        overlay(tmp_path / "images/web1_system.qcow2", path)
        return found

    monkeypatch.setattr(cachedimages, "find_users", seen)
    done = cachedimages.prune(conn, settings, None, is_dry=False)

    disk = tmp_path / "images/web1_system.qcow2"
    assert done == {"removed": {}, "kept": {digest: f"used by {disk}"}}
    assert cache.find(settings, digest)
    removal.refuse_removed(settings, path)


@pytest.mark.parametrize("is_used", [False, True])
def test_between_begin_and_end_all_hosts_can_look_once_more(host, tmp_path, is_used):
    settings, conn, digest, path = host
    size = cache.read_notes(settings)[digest]["stat"][0]

    begun = cachedimages.begin(conn, settings, [digest, "another"])

    assert begun == {"removed": {}, "kept": {}, "begun": [digest]}
    with pytest.raises(ImageError, match="was removed"):
        removal.refuse_removed(settings, path)
    disk = tmp_path / "images/web1_system.qcow2"
    if is_used:
        overlay(disk, path)
    kept = {digest: f"used by {disk}"} if is_used else {}
    assert cachedimages.find_used(conn, settings, [digest, "another"]) == {
        "removed": {},
        "kept": kept,
    }
    removed = {} if is_used else {digest: size}
    assert cachedimages.end(conn, settings, list(removed)) == {"removed": removed, "kept": {}}
    assert bool(cache.find(settings, digest)) is is_used
    assert [one.name for one in cache.ensure_folder(settings).glob("*.removing")] == []


def test_an_image_is_named_by_its_beginning_and_what_is_none_is_refused(host):
    settings, _conn, digest, _path = host

    assert cachedimages.resolve_digests(settings, None) is None
    for typed in (digest, digest[:12], [digest[:12]], f"{digest[:6]},"):
        assert cachedimages.resolve_digests(settings, typed) == [digest]
    assert cachedimages.resolve_digests(settings, "0" * 64) == [], "another host may have it"
    with pytest.raises(BadArgument, match="digests: no image here begins with 'tiny'; see virt.im"):
        cachedimages.resolve_digests(settings, "tiny")
    cache.note_path(cache.ensure_folder(settings), f"{digest[:12]}{'f' * 52}").write_text("{}")
    with pytest.raises(BadArgument, match="digests: more than one image here begins with"):
        cachedimages.resolve_digests(settings, digest[:12])


def test_what_never_began_is_not_ended_whatever_it_is_called(host, tmp_path):
    settings, conn, digest, path = host
    (tmp_path / "other.removing").write_text(f'{{"path": "{path}", "stat": [1, 2]}}')

    names = [digest, "../../other", str(tmp_path / "other")]
    said = cachedimages.end(conn, settings, names)

    assert said == {
        "removed": {},
        "kept": dict.fromkeys(names, "used by a disk that is being made"),
    }
    assert cache.find(settings, digest) and (tmp_path / "other.removing").exists()


def test_a_disk_made_over_an_image_that_goes_is_refused(host, tmp_path):
    settings, _conn, digest, path = host

    def look():
        overlay(tmp_path / "images/web1_system.qcow2", path)
        with pytest.raises(ImageError, match="was removed .virt.image_prune. while a disk was"):
            removal.refuse_removed(settings, path)
        return {}

    assert removal.remove(settings, [digest], look, os.unlink).kept == {}
    assert sorted(one.name for one in cache.ensure_folder(settings).iterdir()) == ["index.json"]


def test_an_image_that_is_fetched_again_meanwhile_stays(host, tmp_path):
    settings, _conn, digest, path = host

    def look():
        cache.obtain(
            str(tmp_path / "source.qcow2"),
            saltenv="base",
            settings=dataclasses.replace(settings, state_dir=str(tmp_path / "other")),
            opts={},
            progress=lambda _done, _total: None,
        )
        return {}

    done = removal.remove(settings, [digest], look, os.unlink)

    assert done.kept == {digest: ["a disk that is being made"]} and cache.find(settings, digest)
    removal.sweep(settings)
    assert cache.find(settings, digest), "its older note is not brought back"


def test_the_note_of_a_removal_that_was_killed_is_not_put_over_a_newer_one(host):
    settings, _conn, digest, _path = host
    note = cache.note_path(cache.ensure_folder(settings), digest)
    note.with_suffix(".removing").write_text(note.read_text().replace('"stat": [', '"stat": [1'))

    removal.sweep(settings)

    assert cache.find(settings, digest)
    assert not note.with_suffix(".removing").exists()


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_removal_that_does_not_end_is_taken_back(host, is_killed):
    settings, _conn, digest, _path = host

    def look():
        raise KeyboardInterrupt

    if is_killed:
        note = cache.note_path(cache.ensure_folder(settings), digest)
        note.rename(note.with_suffix(".removing"))
        assert cache.find(settings, digest) is None
        removal.sweep(settings)
    else:
        with pytest.raises(KeyboardInterrupt):
            removal.remove(settings, [digest], look, os.unlink)

    assert cache.find(settings, digest)


def test_a_chain_that_ends_in_it_uses_it_wherever_its_files_are(host, tmp_path):
    settings, conn, digest, path = host
    middle = overlay(tmp_path / "elsewhere/middle.qcow2", path)
    top = overlay(tmp_path / "elsewhere/top.qcow2", middle)
    dom = conn.defineXML(DOMAIN.format(name="deep", disk=top, driver=QCOW2))
    try:
        done = cachedimages.prune(conn, settings, [digest], is_dry=False)
    finally:
        dom.undefine()

    assert done == {"removed": {}, "kept": {digest: "used by deep"}}
    assert cache.find(settings, digest)


@pytest.mark.parametrize("prune", [cachedimages.begin, cachedimages.find_used])
def test_no_image_goes_while_nobody_can_look_what_is_below_a_disk(host, tmp_path, prune):
    settings, conn, digest, path = host
    disk = overlay(tmp_path / "mounted/web1.qcow2", path)
    dom = conn.defineXML(DOMAIN.format(name="web1", disk=disk, driver=QCOW2))
    (tmp_path / "mounted").rename(tmp_path / "away")
    try:
        with pytest.raises(StorageError, match="web1.qcow2 of VM 'web1' .* mount its file system"):
            prune(conn, settings, [digest])
        (tmp_path / "away").rename(tmp_path / "mounted")
        assert prune(conn, settings, [digest])["kept"] == {digest: "used by web1"}
    finally:
        dom.undefine()


def test_no_image_goes_while_what_is_between_it_and_a_disk_is_out_of_reach(host, tmp_path):
    settings, conn, digest, path = host
    middle = overlay(tmp_path / "mounted/middle.qcow2", path)
    disk = overlay(tmp_path / "elsewhere/web1.qcow2", middle)
    dom = conn.defineXML(DOMAIN.format(name="web1", disk=disk, driver=QCOW2))
    (tmp_path / "mounted").rename(tmp_path / "away")
    try:
        with pytest.raises(StorageError, match="middle.qcow2 of VM 'web1' .* mount its file"):
            cachedimages.prune(conn, settings, [digest], is_dry=False)
        for network in ("nbd://nas.example/d1", "rbd:vms/d1", "nbd:unix:/run/d1:exportname=d1"):
            qemu_img("rebase", "-u", "-F", "raw", "-b", network, disk)
            assert list(cachedimages.prune(conn, settings, [digest], is_dry=True)["removed"]) == [
                digest
            ]
    finally:
        dom.undefine()


def test_an_overlay_in_the_image_folder_uses_it_without_a_vm(host, tmp_path):
    settings, conn, digest, path = host
    lonely = overlay(tmp_path / "images/lonely.qcow2", path)

    assert cachedimages.list_images(conn, settings)[digest]["users"] == [str(lonely)]


@pytest.mark.parametrize("is_usual", [False, True])
def test_an_overlay_in_another_folder_of_vms_uses_it_without_a_vm(host, tmp_path, is_usual):
    settings, conn, digest, path = host
    lonely = overlay(tmp_path / "fast/lonely.qcow2", path)
    if is_usual:
        settings = dataclasses.replace(settings, storagepool=str(tmp_path / "fast"))
    pool = None if is_usual else conn.storagePoolCreateXML(POOL.format(tmp_path / "fast"))
    try:
        done = cachedimages.prune(conn, settings, None, is_dry=False)
    finally:
        if pool is not None:
            pool.destroy()

    assert done == {"removed": {}, "kept": {digest: f"used by {lonely}"}}


def test_a_vm_uses_the_kernel_that_was_fetched_for_it(host, tmp_path):
    settings, conn, digest, _path = host
    kernel = tmp_path / "vmlinuz"
    kernel.write_bytes(b"MZ" * 512)
    got = cache.obtain(
        str(kernel),
        saltenv="base",
        settings=settings,
        opts={},
        progress=lambda _done, _total: None,
        validate=validation.accept_any,
    )
    dom = conn.defineXML(BOOTS.format(kernel=got.path))
    try:
        done = cachedimages.prune(conn, settings, None, is_dry=False)
    finally:
        dom.undefine()

    assert list(done["removed"]) == [digest]
    assert list(done["kept"].values()) == ["used by direct"]


def test_a_chain_that_goes_in_a_circle_ends(host, tmp_path):
    settings, conn, digest, path = host
    ring = overlay(tmp_path / "images/ring.qcow2", path)
    qemu_img("rebase", "-u", "-F", "qcow2", "-b", "ring.qcow2", ring)

    assert cachedimages.list_images(conn, settings)[digest]["users"] == []


def test_nothing_is_removed_while_a_vm_is_built(host):
    settings, conn, digest, _path = host
    with (
        reservations.reserve(
            settings, Requirements(name="web1", vcpus=1, memory_mib=1), "u1", lambda: None
        ),
        pytest.raises(StorageError, match="web1 is being built or moved here"),
    ):
        cachedimages.prune(conn, settings, None, is_dry=False)
    assert cache.find(settings, digest)


def looks_like_an_overlay(path, name):
    """Write what a guest can write into its raw disk: a header of qcow2 that names a file."""
    head = struct.pack(">4sIQIIQI", b"QFI\xfb", 2, 104, len(name), 16, 1 << 30, 0)
    path.write_bytes((head.ljust(104, b"\0") + name).ljust(1 << 20, b"\0"))
    return path


def test_what_a_guest_wrote_into_its_raw_disk_says_nothing(host, tmp_path):
    settings, conn, digest, path = host
    disk = looks_like_an_overlay(tmp_path / "images/web1_system.raw", path.encode())
    dom = conn.defineXML(DOMAIN.format(name="web1", disk=disk, driver=RAW))
    try:
        assert cachedimages.list_images(conn, settings)[digest]["users"] == []
    finally:
        dom.undefine()


def test_what_it_wrote_says_nothing_when_it_lies_below_a_snapshot(host, tmp_path):
    settings, conn, digest, path = host
    disk = looks_like_an_overlay(tmp_path / "elsewhere.raw", path.encode())
    top = tmp_path / "images/web1.snapshot"
    qemu_img("create", "-f", "qcow2", "-F", "raw", "-b", disk, top)
    dom = conn.defineXML(DOMAIN.format(name="web1", disk=top, driver=QCOW2))
    try:
        assert cachedimages.list_images(conn, settings)[digest]["users"] == []
        assert list(diskpaths.chain(str(top))) == [str(top), str(disk)]
    finally:
        dom.undefine()


@pytest.mark.parametrize(
    "name",
    [
        "file:{}",
        'json:{{"driver": "qcow2", "file": {{"driver": "file", "filename": "{}"}}}}',
        'json:{{"file.filename": "{}"}}',
        'json:{{"driver": "qcow2", "file": {{"driver": "file", "filename": "file:{}"}}}}',
    ],
)
def test_a_base_counts_however_a_header_names_it(host, tmp_path, name):
    settings, conn, digest, path = host
    middle = overlay(tmp_path / "elsewhere/middle.qcow2", path)
    top = overlay(tmp_path / "elsewhere/top.qcow2", middle)
    qemu_img("rebase", "-u", "-F", "qcow2", "-b", name.format(middle), top)
    dom = conn.defineXML(DOMAIN.format(name="deep", disk=top, driver=QCOW2))
    try:
        known = usage.index(conn, settings).references(policies.DELETE)
        assert str(middle) in known
        assert cachedimages.list_images(conn, settings)[digest]["users"] == ["deep"]
    finally:
        dom.undefine()


def test_what_a_guest_wrote_says_nothing_where_a_description_says_raw(host, tmp_path):
    _settings, _conn, _digest, path = host
    disk = looks_like_an_overlay(tmp_path / "disk.raw", path.encode())
    top = overlay(tmp_path / "top.qcow2", path)
    name = f'json:{{"driver": "raw", "file": {{"driver": "file", "filename": "{disk}"}}}}'
    qemu_img("rebase", "-u", "-b", name, "-F", "raw", top)

    assert list(diskpaths.chain(str(top))) == [str(top), str(disk)]


@pytest.mark.parametrize("name", [b"json:", b"json:[1]", b'json:{"file": 1, "file.x": {"y": 2}}'])
def test_a_description_without_a_file_is_nothing_below(tmp_path, name):
    disk = looks_like_an_overlay(tmp_path / "lonely.qcow2", name)

    assert list(diskpaths.chain(str(disk))) == [str(disk)]


@pytest.mark.parametrize("name", [b"/x\0y", b"x" * 1023, b"/\xff\xfe", b"../" * 300, b"\n"])
def test_a_name_that_is_none_of_a_file_is_nothing_below(host, tmp_path, name):
    settings, conn, digest, _path = host
    disk = looks_like_an_overlay(tmp_path / "images/lonely.qcow2", name)
    dom = conn.defineXML(DOMAIN.format(name="web1", disk=disk, driver=QCOW2))
    try:
        assert cachedimages.list_images(conn, settings)[digest]["users"] == []
        known = usage.index(conn, settings).references(policies.DELETE)
        assert str(disk) in known
        diskpaths.measure(disk, "qcow2")
    finally:
        dom.undefine()
