"""What a header's extensions say is read as QEMU reads it, also where they are at odds."""

import json
import struct
import subprocess

import hostile
import pytest
from saltvirt.core.errors import ImageError
from saltvirt.storage import diskpaths
from saltvirt.storage.images import qcow2

BACKING_FORMAT, UNKNOWN = 0xE2792ACA, 0x12345678


def said(kind, text=b""):
    """Return an extension as a header has it."""
    return struct.pack(">II", kind, len(text)) + text.ljust(-(-len(text) // 8) * 8, b"\0")


QCOW2, RAW, END = said(BACKING_FORMAT, b"qcow2"), said(BACKING_FORMAT, b"raw"), bytes(8)


@pytest.fixture
def disks(tmp_path):
    """Three disks, each over the next."""
    found = [tmp_path / one for one in ("top", "middle", "base")]
    hostile.qemu_img("create", "-f", "qcow2", found[2], "1M")
    for upper, lower in ((found[1], found[2]), (found[0], found[1])):
        hostile.qemu_img("create", "-f", "qcow2", "-F", "qcow2", "-b", lower, upper, "1M")
    return found


def write(path, extensions):
    """Have a header have other extensions, and behind them the name of what is below it."""
    raw = bytearray(path.read_bytes())
    at, size = struct.unpack(">QI", raw[8:20])
    name = bytes(raw[at : at + size])
    (begin,) = struct.unpack(">I", raw[100:104])
    raw[begin : begin + 4096] = (extensions + name).ljust(4096, b"\0")
    raw[8:20] = struct.pack(">QI", begin + len(extensions), size)
    path.write_bytes(raw)


def opened(path):
    """Return what QEMU opens for a disk."""
    argv = ["qemu-img", "info", "--backing-chain", "--output=json", path]
    done = subprocess.run(argv, check=True, capture_output=True)
    return [one["filename"] for one in json.loads(done.stdout)]


@pytest.mark.parametrize("extensions", [QCOW2 + RAW, RAW + QCOW2, RAW + said(UNKNOWN) * 60 + QCOW2])
def test_the_last_of_a_kind_is_what_is_said(disks, extensions):
    write(disks[0], extensions + END)

    assert list(diskpaths.chain(str(disks[0]))) == opened(disks[0])


def test_none_is_read_behind_the_name(disks):
    name = str(disks[1]).encode()
    raw = bytearray(disks[0].read_bytes())
    begin = 112 + -(-len(name) // 8) * 8
    raw[100:104], raw[8:20] = struct.pack(">I", begin), struct.pack(">QI", 112, len(name))
    raw[112 : begin + len(RAW)] = name.ljust(begin - 112, b"\0") + RAW
    disks[0].write_bytes(raw)

    assert qcow2.read(disks[0]).backing_format is None
    assert list(diskpaths.chain(str(disks[0]))) == opened(disks[0])


def test_what_has_more_than_can_be_is_no_image(disks):
    write(disks[0], RAW + said(UNKNOWN) * 64 + QCOW2 + END)

    assert len(opened(disks[0])) == 3
    with pytest.raises(ImageError, match="damaged: it has more than 64 header extensions"):
        qcow2.read(disks[0])
