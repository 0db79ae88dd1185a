"""What the headers of other formats than qcow2 say of a disk's size; nothing else is read."""

import struct
from dataclasses import dataclass
from pathlib import Path

_SECTOR = 512
_HEADER = 1024
# As large as a file can be.
_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Sizes:
    """The size of a disk, and of the pieces in which it is allocated, in bytes."""

    virtual: int
    cluster: int | None


def sizes(path: str | Path, fmt: str) -> Sizes | None:
    """
    Return what the header of a VMDK, VDI or VHD (``vpc``) says; None if it says nothing of it.

    Raises OSError if the file cannot be read.
    """
    with open(path, "rb") as handle:
        head = handle.read(_HEADER)
        if fmt == "vpc" and not head.startswith(b"conectix"):
            # One of a fixed size has nothing but its end.
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
