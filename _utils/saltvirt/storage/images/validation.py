"""
Validate an image before QEMU opens it.

Our own code reads the header of the untrusted file. It refuses an image that names another file
(backing file, external data file), which could give the guest any file of the host. QEMU never
probes formats.
"""

import os
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from saltvirt.core.errors import ImageError
from saltvirt.storage.images import headers, qcow2, tool

# The format of files that are not disks.
NO_DISK = "bin"
_FOREIGN = {
    b"KDMV": "VMDK",
    b"# Disk DescriptorFile": "VMDK",
    b"vhdxfile": "VHDX",
    b"conectix": "VPC/VHD",
    b"COWD": "VMDK",
    b"QED\0": "QED",
    b"WithoutFreeSpace": "a disk of Parallels",
    b"WithouFreSpacExt": "a disk of Parallels",
    b"Bochs Virtual HD Image": "a disk of Bochs",
}
# VDI, with its maker's name in the first line, and tar archives, such as an OVA.
_VDI_AT, _VDI = 0x40, b"\x7f\x10\xda\xbe"
_TAR_AT, _TAR = 257, b"ustar"
_PAGE = re.compile(rb"\s*(?:<!doctype html|<html|<\?xml)", re.IGNORECASE)
_CONVERT = "convert it with qemu-img convert -O qcow2"
# Formats that qemu-img would take for raw disks, with remedies.
_PACKED = {
    b"\x1f\x8b": ("gzip", "unpack it with gunzip"),
    b"\xfd7zXZ": ("xz", "unpack it with unxz"),
    b"BZh": ("bzip2", "unpack it with bunzip2"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unpack it with unzstd"),
    b"PK\x03\x04": ("zip", "unpack it with unzip"),
    b"7z\xbc\xaf\x27\x1c": ("a 7-Zip archive", "unpack it with 7z x"),
    b"\x04\x22\x4d\x18": ("lz4", "unpack it with unlz4"),
    b"Rar!": ("a RAR archive", "unpack it with unrar"),
    b"MSWIM\0": ("a WIM archive", "it is no disk: install Windows from its ISO"),
    b"LUKS\xba\xbe": ("encrypted with LUKS", "decrypt it"),
}
_UNUSABLE = {**{magic: (name, _CONVERT) for magic, name in _FOREIGN.items()}, **_PACKED}
_FILESYSTEMS = (
    ("ext2/3/4", 0x438, b"\x53\xef"),
    ("XFS", 0, b"XFSB"),
    ("Btrfs", 0x10040, b"_BHRfS_M"),
    ("LVM", 0x218, b"LVM2"),
    ("ISO 9660", 0x8001, b"CD001"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedImage:
    """
    An image that may be used.

    needs_uefi
        Whether it boots by UEFI alone.
    """

    path: str
    format: str
    size_bytes: int
    has_snapshots: bool = False
    needs_uefi: bool = False


def validate(path: str | Path, *, backing_below: Iterable[str | Path] = ()) -> ValidatedImage:
    """
    Return the validated image, or raise ImageError with the reason why it cannot be used.

    backing_below
        The folders that a qcow2 image's backing file may be in. Defaults to none.
    """
    file = Path(path)
    if not file.exists():
        raise ImageError(f"image {path} does not exist on this host")
    if not file.is_file():
        raise ImageError(f"image {path} is not a regular file")
    header = qcow2.read(path)
    if header is None:
        return _validate_raw(file)
    _refuse_references(path, header, backing_below)
    end = tool.check(path) if header.backing_file is None else 0
    # The last cluster may be incomplete: QEMU does not write its unused end.
    if end >= file.stat().st_size + header.cluster_bytes:
        raise ImageError(
            f"image {path} is truncated: its data ends at byte {end}, the file at "
            f"{file.stat().st_size}; fetch or build it again"
        )
    return ValidatedImage(
        path=str(path),
        format="qcow2",
        size_bytes=header.size_bytes,
        has_snapshots=header.has_snapshots,
        needs_uefi=header.backing_file is None
        and headers.needs_uefi(qcow2.read_disk_start(path, headers.HEAD_BYTES)),
    )


def accept_any(path: str | Path) -> ValidatedImage:
    """Accept a non-empty file that is not a disk (a kernel, a minion's package) as it is."""
    size = Path(path).stat().st_size
    if size == 0:
        raise ImageError(f"file {path} is empty")
    return ValidatedImage(path=str(path), format=NO_DISK, size_bytes=size)


def refuse_references(path: str | Path, *, backing_below: Iterable[str | Path]) -> None:
    """Raise ImageError if a qcow2 file names files outside some folders."""
    header = qcow2.read(path)
    if header is not None:
        _refuse_references(path, header, backing_below)


def _refuse_references(
    path: str | Path, header: qcow2.Header, backing_below: Iterable[str | Path]
) -> None:
    backing = header.backing_file
    if backing is not None and not _is_below(path, backing, backing_below):
        not_allowed = "no base image of this host, nor below virt:backing_paths"
        reason = not_allowed if backing_below else "which is never followed"
        raise ImageError(
            f"image {path} names a backing file ({backing!r}), {reason}; make it self-contained "
            "with qemu-img convert"
        )
    if header.has_data_file:
        raise ImageError(
            f"image {path} names an external data file, which is never followed; "
            "make it self-contained with qemu-img convert"
        )
    if header.is_encrypted:
        raise ImageError(f"image {path} is encrypted; decrypt it with qemu-img convert")
    if header.is_corrupt:
        raise ImageError(f"image {path} is marked corrupt; repair it with qemu-img check -r all")
    if header.size_bytes == 0:
        raise ImageError(f"image {path} is a qcow2 image of zero bytes")


def _is_below(path: str | Path, backing: str, folders: Iterable[str | Path]) -> bool:
    """Return whether a backing file exists in one of some folders."""
    try:
        file = os.path.realpath(Path(path).parent / backing, strict=True)
    except OSError:  # also for names that are not paths: json:..., nbd://...
        return False
    return any(Path(file).is_relative_to(os.path.realpath(folder)) for folder in folders)


def _validate_raw(file: Path) -> ValidatedImage:
    size = file.stat().st_size
    with file.open("rb") as handle:
        head = handle.read(0x10200)
    for name, remedy in _find_unusable_kinds(head):
        raise ImageError(f"image {file} is {name}, neither qcow2 nor raw; {remedy}")
    if size < 512 or not _looks_like_disk(head):
        raise ImageError(
            f"image {file} is not a disk image: neither qcow2 nor a raw disk with a partition "
            "table or a file system"
        )
    _refuse_short_raw(file, head, size)
    return ValidatedImage(
        path=str(file),
        format="raw",
        size_bytes=-(-size // 512) * 512,
        needs_uefi=headers.needs_uefi(head),
    )


def _find_unusable_kinds(head: bytes) -> Iterator[tuple[str, str]]:
    """Yield ``(kind, remedy)`` if a file is of a kind that cannot be used."""
    yield from (
        kind_and_remedy for magic, kind_and_remedy in _UNUSABLE.items() if head.startswith(magic)
    )
    if head[_VDI_AT : _VDI_AT + len(_VDI)] == _VDI:
        yield "VDI", _CONVERT
    if head[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR:
        yield (
            "a tar archive, as an appliance (OVA) is",
            "unpack it with tar xf, and convert the disk in it with qemu-img convert -O qcow2",
        )
    if _PAGE.match(head[:512]):
        yield "a web page", "give the URL of the image itself"


def _looks_like_disk(head: bytes) -> bool:
    if head[510:512] == b"\x55\xaa":
        return True
    return any(head[offset : offset + len(magic)] == magic for _name, offset, magic in _FILESYSTEMS)


def _refuse_short_raw(file: Path, head: bytes, size: int) -> None:
    """Refuse a raw disk if its MBR or GPT extends past the end of the file."""
    if head[510:512] != b"\x55\xaa":
        return
    if head[512:520] == b"EFI PART":
        (last_lba,) = struct.unpack_from("<Q", head, 512 + 32)
        end = (last_lba + 1) * 512
    else:
        rows = [struct.unpack_from("<II", head, 446 + 16 * n + 8) for n in range(4)]
        end = max(start + count for start, count in rows) * 512
        if any(head[446 + 16 * n] not in (0, 0x80) for n in range(4)):
            return  # a boot sector without a partition table
    if end > size:
        raise ImageError(
            f"image {file} is truncated: its partitions end at byte {end}, the file at {size}; "
            "fetch or build it again"
        )
