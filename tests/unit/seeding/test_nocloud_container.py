"""The file of a seed is a sound qcow2, and a guest that wipes its key leaves nothing in it."""

import os
import subprocess

import pytest
from saltvirt.core.errors import SeedError
from saltvirt.seeding import firstboot, nocloud
from saltvirt.seeding.seedmodel import Identity


def disk_content(path):
    """Return the content of the disk in a qcow2."""
    raw_path = path.with_suffix(".raw")
    subprocess.run(["qemu-img", "convert", "-O", "raw", path, raw_path], check=True)
    return raw_path.read_bytes()


@pytest.mark.parametrize("size", [512, 4096, 132 * 1024, 2 * 2**20 + 512, 9 * 2**20])
def test_qemu_finds_the_bytes_and_no_fault(tmp_path, size):
    path, data = tmp_path / "seed.qcow2", os.urandom(size)

    path.write_bytes(nocloud.wrap_in_qcow2(data))

    subprocess.run(["qemu-img", "check", "-q", path], check=True)
    assert disk_content(path) == data


def test_a_seed_too_large_for_the_table_is_refused(monkeypatch):
    monkeypatch.setattr(nocloud, "_TABLE", 2)

    with pytest.raises(SeedError, match="the seed is too large: 20480 bytes"):
        nocloud.wrap_in_qcow2(bytes(20480))


def test_a_key_that_is_wiped_is_nowhere_in_the_file_and_the_seed_can_have_snapshots(tmp_path):
    path, key = tmp_path / "seed.qcow2", "-----BEGIN PRIVATE KEY-----\n" + "QUJD" * 400
    nocloud.build(path, Identity(id="web1", config={}, private_key=key), "i-1", install=False)
    offset = len(disk_content(path)) - firstboot.SECRET_BYTES
    assert key.encode() in path.read_bytes()

    wipe = f"write -P 0 {offset} {firstboot.SECRET_BYTES}"
    subprocess.run(["qemu-io", "-f", "qcow2", "-c", wipe, path], check=True, capture_output=True)
    subprocess.run(["qemu-img", "snapshot", "-c", "one", path], check=True)

    assert b"QUJD" not in path.read_bytes()
    subprocess.run(["qemu-img", "check", "-q", path], check=True)
