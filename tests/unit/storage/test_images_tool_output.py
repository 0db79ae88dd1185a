"""What qemu-img says of an image is kept up to a limit: an image decides how much that is."""

import struct
import tracemalloc

import pytest
from saltvirt.core import writelimit
from saltvirt.core.errors import ImageError, StorageError
from saltvirt.core.units import MIB
from saltvirt.storage.images import tool, validation

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


@pytest.fixture
def instead(tmp_path, monkeypatch):
    """Put a program in the place of qemu-img, with what Debian has in /usr/bin beside it."""

    def put(script):
        program = tmp_path / "bin/qemu-img"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")

    return put


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
def test_what_converts_is_ended_too_when_it_says_too_much(tmp_path, instead, stream):
    # No image is known of which qemu-img convert says as much; whoever finds one has it stopped.
    instead(f"exec yes 'this reference is wrong' >&{stream}")
    meter = writelimit.Room(max_bytes=MIB, reserve_bytes=0, limit_s=60).meter("x", tmp_path)

    with pytest.raises(ImageError, match="image evil.img cannot be used: its tables are damaged"):
        tool.convert("evil.img", "raw", tmp_path / "out", "qcow2", meter)


def test_it_runs_with_limits(tmp_path, instead):
    # The real one ends before anybody could look; this says with which limits it was begun.
    said, target = tmp_path / "said", tmp_path / "x.qcow2"
    instead(f"(ulimit -v; ulimit -c; ulimit -f; umask) >{said}")

    tool.create(target, MIB, "qcow2")
    made = said.read_text().split()
    meter = writelimit.Room(max_bytes=3 * MIB, reserve_bytes=0, limit_s=60).meter("x", tmp_path)
    tool.convert(target, "qcow2", tmp_path / "out", "qcow2", meter)
    written, most = said.read_text().split(), meter.most_bytes()

    # A shell counts memory in KiB and files in halves of them.
    assert made == [str((2 << 30) >> 10), "0", "unlimited", "0077"]
    assert written == [*made[:2], str(most // 512), "0077"]


@pytest.mark.parametrize(
    ("program", "package"), [("prlimit", "util-linux"), ("qemu-img", "qemu-utils/qemu-img")]
)
def test_what_is_missing_is_named_with_its_package(tmp_path, monkeypatch, program, package):
    for name in {"prlimit", "qemu-img"} - {program}:
        (tmp_path / name).symlink_to(f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(StorageError, match=f"{program} is missing on this host; install {package}"):
        tool.create(tmp_path / "x.qcow2", MIB, "qcow2")
