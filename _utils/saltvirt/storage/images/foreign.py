"""Read a disk's size from the headers of VMDK, VDI and VHD files."""

import struct
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
