"""What the first bytes of a disk say: sizes in VMDK, VDI and VHD, and whether it boots by UEFI."""

import struct
import uuid
from dataclasses import dataclass
from pathlib import Path

_SECTOR = 512
_HEADER = 1024
# The largest possible file.
_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Sizes:
    """The virtual size of a disk, and its unit of allocation, in bytes."""

    virtual: int
    cluster: int | None


def foreign_sizes(path: str | Path, fmt: str) -> Sizes | None:
    """
    Return the sizes in the header of a VMDK, VDI or VHD (``vpc``); None without a valid header.

    Raise OSError if the file cannot be read.
    """
    with open(path, "rb") as handle:
        head = handle.read(_HEADER)
        if fmt == "vpc" and not head.startswith(b"conectix"):
            # A VHD of fixed size has only a footer.
            handle.seek(0, 2)
            handle.seek(max(0, handle.tell() - _SECTOR))
            head = handle.read(_SECTOR)
    header_sizes = _READERS[fmt](head) if fmt in _READERS and len(head) >= _SECTOR else None
    return (
        header_sizes
        if header_sizes and max(header_sizes.virtual, header_sizes.cluster or 0) <= _MOST
        else None
    )


def _vmdk(head: bytes) -> Sizes | None:
    sectors, grain = struct.unpack_from("<QQ", head, 12)
    return Sizes(sectors * _SECTOR, grain * _SECTOR) if head[:4] == b"KDMV" else None


def _vdi(head: bytes) -> Sizes | None:
    size, block = struct.unpack_from("<QI", head, 0x170)
    return Sizes(size, block) if head[0x40:0x44] == b"\x7f\x10\xda\xbe" else None


def _vpc(head: bytes) -> Sizes | None:
    return Sizes(struct.unpack_from(">Q", head, 48)[0], None) if head[:8] == b"conectix" else None


_READERS = {"vmdk": _vmdk, "vdi": _vdi, "vpc": _vpc}


# Enough for the MBR and a GPT, which take 34 sectors.
HEAD_BYTES = 64 * 1024
_SIGNATURE, _CODE_BYTES = b"\x55\xaa", 440
_GPT = b"EFI PART"
_ESP = uuid.UUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b").bytes_le
# GRUB's partition for BIOS boot code on a GPT disk.
_BIOS_BOOT = uuid.UUID("21686148-6449-6e6f-744e-656564454649").bytes_le
_MBR_ESP = 0xEF
_MOST_ENTRIES = 128


def needs_uefi(head: bytes) -> bool:
    """
    Return whether a disk boots by UEFI alone: it has an EFI partition, and no BIOS boot code.

    head
        The first bytes of the disk.
    """
    if head[510:512] != _SIGNATURE or any(head[:_CODE_BYTES]):
        return False
    if head[_SECTOR : _SECTOR + len(_GPT)] == _GPT:
        types = _types(head)
        return _ESP in types and _BIOS_BOOT not in types
    return any(head[446 + 16 * number + 4] == _MBR_ESP for number in range(4))


def _types(head: bytes) -> list[bytes]:
    """Return the partition types of a GPT."""
    first_lba, count, size = struct.unpack_from("<QII", head, _SECTOR + 72)
    begin = first_lba * _SECTOR
    if not 128 <= size <= 4096 or begin >= len(head):
        return []
    entries = range(begin, begin + size * min(count, _MOST_ENTRIES), size)
    return [head[entry : entry + 16] for entry in entries]
