"""Disks that strangers made to hurt, each made anew: none is kept in the repository."""

import os
import random
import struct
import subprocess
from pathlib import Path

MIB = 1 << 20


def qemu_img(*words):
    """Run qemu-img, as whoever makes a disk does."""
    subprocess.run(["qemu-img", *map(str, words)], check=True, capture_output=True)


def root(folder, *, minion=True):
    """Make what looks like the root of a Linux system."""
    for part in ("etc/ssh", "sbin", "usr/bin", "usr/lib/systemd/system", "tmp", "dev", "var"):
        (folder / part).mkdir(parents=True)
    (folder / "sbin/init").write_text("")
    (folder / "etc/fstab").write_text("")
    (folder / "usr/lib/systemd/systemd").write_text("")
    (folder / "etc/os-release").write_text('ID=debian\nVERSION_ID="12"\n')
    (folder / "etc/debian_version").write_text("12.1\n")
    if minion:
        (folder / "usr/bin/salt-minion").write_text("")
        (folder / "usr/lib/systemd/system/salt-minion.service").write_text("")
    return folder


def ext4(path, tree, mib=64):
    """Make a raw disk that is one ext4 file system with this content."""
    argv = ["mke2fs", "-q", "-F", "-t", "ext4", "-d", tree, path, f"{mib}M"]
    subprocess.run(list(map(str, argv)), check=True, capture_output=True)
    return path


def as_qcow2(raw, path):
    """Wrap a raw disk, so that only its content is hostile."""
    qemu_img("convert", "-f", "raw", "-O", "qcow2", raw, path)
    Path(raw).unlink()
    return path


def partitioned(raw, entries):
    """Return a disk with an MBR of these ``(type, first sector, sectors)`` before a raw disk."""
    table = bytearray(512)
    for number, (kind, first, count) in enumerate(entries):
        struct.pack_into("<B3xB3xII", table, 446 + 16 * number, 0, kind, first, count)
    table[510:512] = b"\x55\xaa"
    disk = raw.with_suffix(".disk")
    with disk.open("wb") as out:
        out.write(table)
        out.seek(MIB)
        out.write(raw.read_bytes())
    raw.unlink()
    return disk


def _links_out(work):
    tree = root(work / "links_out")
    (tree / "etc/salt").symlink_to("/etc")
    (tree / "etc/hostname").symlink_to("../../../../../../etc/hostname")
    return ext4(work / "links_out.raw", tree)


def _link_farm(work):
    tree = root(work / "link_farm")
    for number in range(200):
        (tree / f"etc/l{number}").symlink_to(f"/etc/l{number + 1}")
    (tree / "etc/salt").symlink_to("/etc/l0")
    (tree / "etc/l200").symlink_to("/etc/l0")
    return ext4(work / "link_farm.raw", tree)


def _pipes(work):
    tree = root(work / "pipes")
    for name in ("etc/machine-id", "etc/hostname", "etc/ssh/ssh_host_rsa_key"):
        os.mkfifo(tree / name)
    (tree / "etc/salt").write_text("a file where a folder belongs")
    return ext4(work / "pipes.raw", tree)


def _overlapping(work):
    raw = ext4(work / "overlapping.raw", root(work / "overlapping"))
    far = 0xFFFFFFF0
    return partitioned(raw, [(0x83, 1, far), (0x83, 0, far), (0x05, 2, far), (0x83, far, far)])


def _chain_of_tables(work):
    """Extended partitions that lead in a circle."""
    raw = work / "circle.raw"
    raw.write_bytes(bytes(8 * MIB))
    disk = partitioned(raw, [(0x05, 2048, 4096)])
    with disk.open("r+b") as out:
        for sector in (2048, 2049):
            out.seek(sector * 512)
            table = bytearray(512)
            struct.pack_into("<B3xB3xII", table, 446, 0, 0x83, 1, 1)
            struct.pack_into("<B3xB3xII", table, 462, 0, 0x05, 2049 - sector, 4096)
            table[510:512] = b"\x55\xaa"
            out.write(table)
    return disk


def _lying_superblock(work):
    raw = ext4(work / "superblock.raw", root(work / "superblock"))
    with raw.open("r+b") as out:
        out.seek(1024)
        block = bytearray(out.read(1024))
        struct.pack_into("<II", block, 0, 0xFFFFFFFF, 0xFFFFFFFF)  # inodes, blocks
        struct.pack_into("<I", block, 24, 22)  # block size
        out.seek(1024)
        out.write(block)
    return raw


def _mutated(work):
    raw = ext4(work / "mutated.raw", root(work / "mutated"), mib=16)
    noise = random.Random(5)
    with raw.open("r+b") as out:
        for _ in range(400):
            out.seek(noise.randrange(2048, 4 * MIB))
            out.write(noise.randbytes(4))
    return raw


def _lvm(work):
    raw = work / "lvm.raw"
    raw.write_bytes(bytes(8 * MIB))
    with raw.open("r+b") as out:
        out.seek(512)
        out.write(b"LABELONE" + struct.pack("<QII", 1, 0xDEADBEEF, 32) + b"LVM2 001" + b"A" * 400)
    return raw


def _nothing(work):
    raw = work / "nothing.raw"
    raw.write_bytes(random.Random(6).randbytes(4 * MIB))
    return raw


CONTENTS = {
    "links-out": _links_out,
    "link-farm": _link_farm,
    "pipes": _pipes,
    "overlapping": _overlapping,
    "circle": _chain_of_tables,
    "superblock": _lying_superblock,
    "mutated": _mutated,
    "lvm": _lvm,
    "nothing": _nothing,
}


def content(name, work, path):
    """Make one of :data:`CONTENTS` as a qcow2 image with a harmless header."""
    work.mkdir(exist_ok=True)
    return as_qcow2(CONTENTS[name](work), path)
