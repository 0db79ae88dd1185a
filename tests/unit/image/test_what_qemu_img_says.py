"""What qemu-img says of an image is kept up to a limit: an image decides how much that is."""

import struct
import tracemalloc

import pytest
from saltvirt import room
from saltvirt.errors import ImageError
from saltvirt.image import tool, validation
from saltvirt.units import MIB

CLUSTER = 1 << 16


@pytest.fixture
def chatty(tmp_path):
    """An image of 320 KiB: each of 64 tables is the same one, whose references are all wrong."""
    path, tables = tmp_path / "chatty.qcow2", 64
    head = struct.pack(
        ">4sIQIIQIIQQIIQ",
        *(b"QFI\xfb", 3, 0, 0, 16, 64 * MIB),
        *(0, tables, 4 * CLUSTER, CLUSTER, 1, 0, 0),
    )
    wrong = [1 << 63 | (1 << 40) + n * CLUSTER for n in range(CLUSTER // 8)]
    with path.open("wb") as out:
        for at, what in (
            (0, head + struct.pack(">QQQII", 0, 0, 0, 4, 104)),
            (1, struct.pack(">Q", 2 * CLUSTER)),
            (2, struct.pack(">H", 1) * 5),
            (3, struct.pack(f">{len(wrong)}Q", *wrong)),
            (4, struct.pack(">Q", 1 << 63 | 3 * CLUSTER) * tables),
        ):
            out.seek(at * CLUSTER)
            out.write(what)
        out.truncate(5 * CLUSTER)
    return path


def test_a_small_image_does_not_have_much_said_of_it(chatty):
    tracemalloc.start()
    try:
        with pytest.raises(ImageError, match=f"image {chatty} cannot be used: its tables are dam"):
            validation.validate(chatty)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert most < 8 * MIB


@pytest.mark.parametrize("stream", [1, 2])
def test_what_converts_is_ended_too_when_it_says_too_much(tmp_path, monkeypatch, stream):
    # No image is known of which qemu-img convert says as much; whoever finds one has it stopped.
    program = tmp_path / "bin/qemu-img"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexec yes 'this reference is wrong' >&{stream}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    meter = room.Room(max_bytes=MIB, reserve_bytes=0, limit_s=60).meter("x", tmp_path)

    with pytest.raises(ImageError, match="image evil.img cannot be used: its tables are damaged"):
        tool.convert("evil.img", "raw", tmp_path / "out", "qcow2", meter)
