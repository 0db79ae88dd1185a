"""What an image boots by, and what it is where it is no image: read from its first sectors."""

import struct
import subprocess
import tarfile
import uuid

import pytest
from saltvirt.core.errors import ImageError
from saltvirt.storage.images import headers, qcow2, validation

ESP = uuid.UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b")
BIOS_BOOT = uuid.UUID("21686148-6449-6e6f-744e-656564454649")
LINUX = uuid.UUID("0fc63daf-8483-4772-8e79-3d69d8477de4")
MIB = 1024**2


def gpt(*types, code=b"", entry_bytes=128):
    """Return a disk of 4 MiB with a GPT, and what is in its boot sector."""
    mbr = code.ljust(446, b"\0") + b"\0\0\0\0\xee" + bytes(59) + b"\x55\xaa"
    header = struct.pack("<8s16xQQQQ16xQII", b"EFI PART", 1, 8191, 34, 8158, 2, 128, entry_bytes)
    table = b"".join(one.bytes_le.ljust(entry_bytes, b"\0") for one in types)
    return (mbr + header.ljust(512, b"\0") + table).ljust(4 * MIB, b"\0")


def mbr(kind, code=b""):
    """Return a disk of 4 MiB with a partition of a kind."""
    row = struct.pack("<B3xB3xII", 0x80, kind, 2048, 2048)
    return (code.ljust(446, b"\0") + row + bytes(48) + b"\x55\xaa").ljust(4 * MIB, b"\0")


DISKS = {
    "GPT with an ESP alone": (gpt(ESP, LINUX), True),
    "GPT with larger entries": (gpt(LINUX, ESP, entry_bytes=256), True),
    "GPT for both": (gpt(BIOS_BOOT, ESP, LINUX, code=b"\xeb\x63"), False),
    "GPT with a BIOS's partition": (gpt(BIOS_BOOT, ESP), False),
    "GPT with code of a BIOS": (gpt(ESP, LINUX, code=b"\xeb\x63"), False),
    "GPT for data": (gpt(LINUX), False),
    "MBR with an ESP": (mbr(0xEF), True),
    "MBR with an ESP and code": (mbr(0xEF, code=b"\xfa"), False),
    "MBR for data": (mbr(0x83), False),
    "no partitions": (bytes(4 * MIB), False),
    "a table that is cut off": (gpt(ESP)[:600], False),
    "a table elsewhere": (gpt(ESP)[: 512 + 72] + b"\xff" * 16 + gpt(ESP)[600:], False),
}


@pytest.mark.parametrize("name", DISKS)
def test_an_image_for_uefi_alone_is_told_from_others(name):
    disk, wanted = DISKS[name]

    assert headers.needs_uefi(disk[: headers.HEAD_BYTES]) is wanted


@pytest.mark.parametrize("how", [[], ["-c"], ["-o", "cluster_size=512"], ["-o", "compat=0.10"]])
def test_the_beginning_of_a_qcow2_disk_is_read_as_qemu_reads_it(tmp_path, how):
    disk = gpt(ESP, LINUX)[:2048] + bytes(range(256)) * 128
    disk = disk.ljust(4 * MIB, b"\0")
    (tmp_path / "raw").write_bytes(disk)
    argv = ["qemu-img", "convert", *how, "-f", "raw", "-O", "qcow2", tmp_path / "raw"]
    subprocess.run([*argv, tmp_path / "x.qcow2"], check=True)

    assert qcow2.read_disk_start(tmp_path / "x.qcow2", 65536) == disk[:65536]
    assert validation.validate(tmp_path / "x.qcow2").needs_uefi
    assert validation.validate(tmp_path / "raw").needs_uefi


def test_damaged_tables_are_no_error(tmp_path):
    path = tmp_path / "x.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, "4M"], check=True)
    good = path.read_bytes()
    for at in (20, 40, 72):
        path.write_bytes(good[:at] + b"\xff" * 8 + good[at + 8 :])
        assert not any(qcow2.read_disk_start(path, 65536))
    path.write_bytes(good[:60])
    assert qcow2.read_disk_start(path, 65536) == b""


@pytest.mark.parametrize("fmt", ["vdi", "vmdk", "vpc", "vhdx", "qed", "parallels"])
def test_disks_of_other_programs_are_named_with_what_converts_them(tmp_path, fmt):
    path = tmp_path / "x"
    made = subprocess.run(
        ["qemu-img", "create", "-q", "-f", fmt, path, "4M"], check=False, capture_output=True
    )
    if made.returncode:
        pytest.skip(f"this qemu-img makes no {fmt}")

    with pytest.raises(ImageError, match=r"neither qcow2 nor raw; convert it with qemu-img"):
        validation.validate(path)


def test_the_vdi_of_virtualbox_is_named(tmp_path):
    path = tmp_path / "x.vdi"
    head = b"<<< Oracle VM VirtualBox Disk Image >>>\n".ljust(0x40, b"\0")
    path.write_bytes((head + struct.pack("<I", 0xBEDA107F)).ljust(4096, b"\0"))

    with pytest.raises(ImageError, match="is VDI, neither qcow2 nor raw; convert it"):
        validation.validate(path)


def test_an_appliance_is_named_with_what_is_to_be_done(tmp_path):
    (tmp_path / "x.ovf").write_text("<xml/>")
    with tarfile.open(tmp_path / "x.ova", "w") as archive:
        archive.add(tmp_path / "x.ovf", "x.ovf")

    with pytest.raises(ImageError, match=r"a tar archive, as an appliance \(OVA\) is.*tar xf"):
        validation.validate(tmp_path / "x.ova")


@pytest.mark.parametrize(
    ("begin", "name"),
    [
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"\n <HTML>", "a web page"),
        (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
        (b"\x04\x22\x4d\x18", "lz4"),
        (b"MSWIM\0\0\0", "a WIM archive"),
    ],
)
def test_what_is_no_image_is_named(tmp_path, begin, name):
    (tmp_path / "x").write_bytes(begin.ljust(4096, b"\0"))

    with pytest.raises(ImageError, match=f"is {name}, neither qcow2 nor raw"):
        validation.validate(tmp_path / "x")
