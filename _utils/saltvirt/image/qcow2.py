"""The qcow2 header, read without a subprocess and without following anything it names."""

import struct
from dataclasses import dataclass

from saltvirt.errors import ImageError

MAGIC = b"QFI\xfb"
_EXTERNAL_DATA = 1 << 2
# Every bit that qcow2's specification defines (dirty, corrupt, data file, compression, L2).
_KNOWN_INCOMPATIBLE = 0b11111


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the header says (QEMU, docs/interop/qcow2.txt)."""

    version: int
    size_bytes: int
    backing_file: str | None
    has_data_file: bool
    is_encrypted: bool
    is_corrupt: bool


def read(path):
    """Return the header of a qcow2 file, or None if it is not one."""
    with open(path, "rb") as handle:
        raw = handle.read(104)
        if raw[:4] != MAGIC:
            return None
        return _parse(raw, handle, path)


def _parse(raw, handle, path):
    if len(raw) < 72:
        raise ImageError(f"image {path} is truncated inside its qcow2 header")
    version, backing_at, backing_size, _bits, size, crypt = struct.unpack(">IQIIQI", raw[4:36])
    if version not in (2, 3):
        raise ImageError(f"image {path} is qcow version {version}; use qemu-img convert")
    features = 0
    if version == 3:
        if len(raw) < 104:
            raise ImageError(f"image {path} is truncated inside its qcow2 header")
        (features,) = struct.unpack(">Q", raw[72:80])
        if features & ~_KNOWN_INCOMPATIBLE:
            raise ImageError(f"image {path} needs unknown qcow2 features ({features:#x})")
    backing = None
    if backing_at:
        if backing_size > 1023:
            raise ImageError(f"image {path} is damaged: its backing file name is too long")
        handle.seek(backing_at)
        backing = handle.read(backing_size).decode(errors="replace")
    return Header(
        version=version,
        size_bytes=size,
        backing_file=backing,
        has_data_file=bool(features & _EXTERNAL_DATA),
        is_encrypted=bool(crypt),
        is_corrupt=bool(features & 2),
    )
