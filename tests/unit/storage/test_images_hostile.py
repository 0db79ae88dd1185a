"""Images made to hurt: an error each, soon, and nothing of the host in any guest's disk."""

import os
import random
import resource
import struct
import time
from dataclasses import replace

import hostile
import pytest
from fetching import least_free, obtain
from hypothesis import given, settings
from hypothesis import strategies as st
from saltvirt.core import writelimit
from saltvirt.core.errors import ImageError, StorageError
from saltvirt.storage.images import qcow2, tool, validation
from sizes import sizes

MIB = 1 << 20
SECRET = b"this is a secret of the host"
ROOM = writelimit.Room(max_bytes=64 * MIB, reserve_bytes=0, limit_s=60)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A small good qcow2 image with data, and a file of the host that no guest may see."""
    folder = tmp_path_factory.mktemp("good")
    raw = folder / "raw"
    raw.write_bytes((bytes(510) + b"\x55\xaa" + os.urandom(200_000)).ljust(MIB, b"\0"))
    hostile.qemu_img("convert", "-f", "raw", "-O", "qcow2", raw, folder / "good.qcow2")
    (folder / "secret").write_bytes(SECRET * 1000)
    return folder


def header(path, fmt, at, *values):
    """Write into an image's header."""
    with path.open("r+b") as out:
        out.seek(at)
        out.write(struct.pack(fmt, *values))


def backing(good, path):
    """Name a file of the host as the image below."""
    hostile.qemu_img("create", "-f", "qcow2", "-u", "-b", good / "secret", "-F", "raw", path, "1M")


def json_backing(good, path):
    """Name one through QEMU's pseudo-protocol."""
    name = f'json:{{"driver":"raw","file.filename":"{good}/secret"}}'
    hostile.qemu_img("create", "-f", "qcow2", "-u", "-b", name, "-F", "raw", path, "1M")


def data_file(good, path):
    """Keep the data elsewhere."""
    hostile.qemu_img(
        "create", "-f", "qcow2", "-o", f"data_file={good}/d.raw,data_file_raw=on", path, "1M"
    )


def luks(good, path):
    """Encrypt it as a whole."""
    raw = b"LUKS\xba\xbe\x00\x01" + bytes(MIB)
    path.write_bytes(raw)


def patched(good, path, *change):
    """Be a good one but for what :func:`header` writes."""
    path.write_bytes((good / "good.qcow2").read_bytes())
    header(path, *change)


def encrypted(good, path):
    """Say that it is encrypted."""
    patched(good, path, ">I", 32, 2)


def bomb(good, path):
    """Be 8 EiB large."""
    patched(good, path, ">Q", 24, 1 << 62)


def many_tables(good, path):
    """Have four thousand million tables."""
    patched(good, path, ">I", 36, 0xFFFFFFFF)


def table_elsewhere(good, path):
    """Have the table of tables beyond the end."""
    patched(good, path, ">Q", 40, 1 << 50)


def shared_clusters(good, path):
    """Have every entry of a table lead to one cluster: small here, huge when it is copied."""
    path.write_bytes((good / "good.qcow2").read_bytes())
    (l1,) = struct.unpack(">Q", path.read_bytes()[40:48])
    (l2,) = struct.unpack(">Q", path.read_bytes()[l1 : l1 + 8])
    entry = path.read_bytes()[(l2 & 0x00FFFFFFFFFFFE00) :][:8]
    header(path, "8192s", l2 & 0x00FFFFFFFFFFFE00, entry * 1024)


def snapshots(good, path):
    """Have sixty thousand snapshots."""
    patched(good, path, ">IQ", 60, 60000, 0x10000)


def unknown_feature(good, path):
    """Need what nobody knows."""
    patched(good, path, ">Q", 72, 1 << 40)


def old(good, path):
    """Be of the first version, which nobody maintains."""
    path.write_bytes(b"QFI\xfb" + struct.pack(">I", 1) + bytes(4096))


def vmdk(good, path):
    """Be text that names other files."""
    path.write_text(f'# Disk DescriptorFile\nRW 2048 FLAT "{good}/secret" 0\n')


def huge_table(good, path):
    """Be a raw disk with a partition table that reaches past its end."""
    entry = struct.pack("<B3xB3xII", 0, 0x83, 1, 0xFFFFFFF0)
    path.write_bytes(bytes(446) + entry + bytes(48) + b"\x55\xaa" + bytes(MIB))


CORPUS = [
    backing,
    json_backing,
    data_file,
    luks,
    encrypted,
    bomb,
    many_tables,
    table_elsewhere,
    shared_clusters,
    snapshots,
    unknown_feature,
    old,
    vmdk,
    huge_table,
]


@pytest.mark.slow
@pytest.mark.parametrize("make", CORPUS, ids=lambda make: make.__name__)
def test_an_image_made_to_hurt_is_refused_soon_and_leaves_nothing(
    tmp_path, good, host, small_disk, make
):
    path = tmp_path / "evil"
    make(good, path)
    host = replace(host, images=str(small_disk / "images"), disk_reserve_mib=20)
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss

    with least_free(small_disk) as least, pytest.raises(ImageError) as refused:
        obtain(host, path)

    text = str(refused.value)
    assert "\n" not in text and str(path) in text and SECRET.decode() not in text
    assert time.monotonic() - began < 30
    grown = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - before
    assert grown < 512 * 1024  # KiB
    assert writelimit.read_space(small_disk)[0] - least[0] < writelimit.allocated_bytes(path) + MIB
    assert [p.name for p in (small_disk / "images/base").iterdir()] == ["index.json"]


# The header and what follows it; our own reader alone, as each qemu-img would take 20 ms.
ONE = st.tuples(st.integers(0, 511), st.binary(min_size=1, max_size=8))


def mutated(good, changes):
    """Return the good image with some of its bytes replaced."""
    data = bytearray((good / "good.qcow2").read_bytes())
    for at, new in changes:
        data[at : at + len(new)] = new
    return bytes(data)


@sizes(quick=300, full=2000)
@pytest.mark.slow
def test_no_mutation_of_a_header_is_anything_but_refused_or_read(good, size):
    path = good / "mutated.qcow2"

    @settings(max_examples=size, deadline=None)
    @given(changes=st.lists(ONE, min_size=1, max_size=6))
    def looked_at(changes):
        path.write_bytes(mutated(good, changes))
        try:
            header_ = qcow2.read(path)
        except ImageError:
            return
        if header_ is not None:
            assert header_.version in (2, 3) and header_.size_bytes >= 0

    looked_at()


def is_valid(path):
    """Return whether an image is found valid; anything but its own error is a failure."""
    try:
        validated = validation.validate(path)
    except ImageError as exc:
        assert "\n" not in str(exc)
        return False
    assert validated.size_bytes > 0
    return True


@sizes(quick=60, full=300)
@pytest.mark.slow
def test_a_mutated_image_that_is_accepted_can_be_read_to_its_end(good, size):
    noise, let_in = random.Random(7), 0
    path, out = good / "mutated.qcow2", good / "out.raw"
    for _ in range(size):
        places = [
            (noise.randrange(0, 104), noise.randbytes(noise.randrange(1, 9)))
            if noise.random() < 0.5
            else (noise.randrange(104, 330_000), noise.randbytes(4))
            for _ in range(noise.randrange(1, 4))
        ]
        path.write_bytes(mutated(good, places)[: 393_216 + 200_000])
        if not is_valid(path):
            continue
        try:
            tool.convert(path, "qcow2", out, "raw", ROOM.meter(path, good))
        except StorageError:
            # It says that it is larger than a file can be.
            assert validation.validate(path).size_bytes > ROOM.max_bytes
            continue
        let_in += 1
        assert writelimit.allocated_bytes(out) <= MIB
        with out.open("rb") as read:
            assert SECRET not in read.read(2 * MIB)
    assert let_in > size / 15  # else the mutations would test the refusal alone
