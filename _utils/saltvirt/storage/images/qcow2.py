"""Read qcow2 files without a subprocess, and without opening any file that they name."""

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from saltvirt.core.errors import ImageError

MAGIC = b"QFI\xfb"
# Version 1, and the limit for the end of its backing file's name; later versions: one cluster.
_FIRST, _FIRST_BYTES = b"\0\0\0\1", 2**16
_EXTERNAL_DATA = 1 << 2
_EXTENDED_L2 = 1 << 4
# In table entries: the offset of a table or cluster, and the flag of a compressed cluster.
_OFFSET, _COMPRESSED = 0x00FFFFFFFFFFFE00, 1 << 62
_BACKING_FORMAT = 0xE2792ACA
_DATA_FILE = 0x44415441
# A limit; there are six kinds of header extensions.
_EXTENSIONS = 64
# Longer names are no paths.
_NAME_BYTES = 4096
# Every bit that qcow2's specification defines (dirty, corrupt, data file, compression, L2).
_KNOWN_INCOMPATIBLE = 0b11111
# Limits for a list of snapshots: bytes read, and entries returned.
_MOST_READ = 2**20
_MOST_LISTED = 1024
_SNAPSHOT = ">QIHHIIQII"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """
    A qcow2 header (QEMU, docs/interop/qcow2.txt).

    data_file
        The external data file of an image that ``has_data_file``, if the header names it.
    """

    version: int
    size_bytes: int
    cluster_bytes: int
    backing_file: str | None
    backing_format: str | None
    has_data_file: bool
    data_file: str | None
    is_encrypted: bool
    is_corrupt: bool
    has_snapshots: bool


def read(path: str | Path) -> Header | None:
    """Return the header of a qcow2 file, None for other files."""
    with open(path, "rb") as handle:
        raw = handle.read(104)
        if raw[:4] != MAGIC:
            return None
        return _parse(raw, handle, path)


def read_references(path: str | Path) -> list[tuple[str, str | None]]:
    """
    Return ``[(name, format)]`` of the files that a qcow header names, its data file too.

    Version 1 is read as well: QEMU and libvirt still accept it as a disk.
    """
    with open(path, "rb") as handle:
        raw = handle.read(104)
        if raw[:4] != MAGIC:
            return []
        names: list[tuple[str | None, str | None]]
        if raw[4:8] == _FIRST and len(raw) >= 48:
            offset, size = struct.unpack(">QI", raw[8:20])
            names = [(_name(handle, path, offset, size, _FIRST_BYTES), None)]
        else:
            header = _parse(raw, handle, path)
            # A data file is raw: its guest may have written anything that looks like a header.
            names = [(header.backing_file, header.backing_format), (header.data_file, "raw")]
    return [(name, fmt) for name, fmt in names if name]


def read_disk_start(path: str | Path, size: int) -> bytes:
    """
    Return the first bytes of the disk in a qcow2 file that names no other file.

    Clusters that are damaged, or compressed by other means than zlib, read as zeros.
    """
    with open(path, "rb") as handle:
        raw = handle.read(104)
        if raw[:4] != MAGIC or len(raw) < 72:
            return b""
        (bits,), (l1_at,) = struct.unpack_from(">I", raw, 20), struct.unpack_from(">Q", raw, 40)
        features = struct.unpack_from(">Q", raw, 72)[0] if raw[4:8] == b"\0\0\0\3" else 0
        if not 9 <= bits <= 21 or features & _EXTERNAL_DATA:
            return b""
        tables = _Tables(handle, bits, 16 if features & _EXTENDED_L2 else 8)
        count = -(-size // (1 << bits))
        return b"".join(tables.cluster(l1_at, number) for number in range(count))[:size]


class _Tables:
    """The tables of a qcow2 file, which locate its clusters."""

    def __init__(self, handle: BinaryIO, bits: int, entry_bytes: int) -> None:
        self._handle, self._bits, self._entry_bytes = handle, bits, entry_bytes

    def cluster(self, l1_at: int, number: int) -> bytes:
        size = 1 << self._bits
        upper, lower = divmod(number, size // self._entry_bytes)
        l2_at = self._entry(l1_at + 8 * upper) & _OFFSET
        entry = self._entry(l2_at + self._entry_bytes * lower) if l2_at else 0
        if entry & _COMPRESSED:
            return self._unpacked(entry).ljust(size, b"\0")
        # A zero cluster may be allocated, with any content.
        is_zero = self._entry_bytes == 8 and entry & 1
        data = b"" if is_zero or not entry & _OFFSET else self._read(entry & _OFFSET, size)
        return data.ljust(size, b"\0")

    def _entry(self, offset: int) -> int:
        return int.from_bytes(self._read(offset, 8), "big")

    def _unpacked(self, entry: int) -> bytes:
        shift = 62 - (self._bits - 8)
        offset, sectors = entry & ((1 << shift) - 1), (entry & (_COMPRESSED - 1)) >> shift
        compressed_data = self._read(offset, (sectors + 1) * 512)
        try:
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(compressed_data, 1 << self._bits)
        except zlib.error:
            return b""

    def _read(self, offset: int, size: int) -> bytes:
        if offset >= 2**63:
            return b""
        self._handle.seek(offset)
        return self._handle.read(size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """An internal snapshot in a qcow2 file; the time is since 1970."""

    id: str
    name: str
    time_s: float
    vm_clock_ns: int
    vm_state_bytes: int


def snapshots(path: str | Path) -> list[Snapshot]:
    """Return the internal snapshots of a qcow2 file, up to the first damaged entry."""
    with open(path, "rb") as handle:
        raw = handle.read(72)
        if raw[:4] != MAGIC or len(raw) < 72:
            return []
        count, offset = struct.unpack(">IQ", raw[60:72])
        if offset >= 2**63:
            return []
        handle.seek(offset)
        return list(_snapshots(handle.read(_MOST_READ), min(count, _MOST_LISTED)))


def _snapshots(raw: bytes, count: int) -> Iterator[Snapshot]:
    offset, size = 0, struct.calcsize(_SNAPSHOT)
    for _ in range(count):
        if offset + size > len(raw):
            return
        _l1, _entries, id_size, name_size, *fields = struct.unpack_from(_SNAPSHOT, raw, offset)
        seconds, nanoseconds, clock, state, extra = fields
        begin = offset + size + extra
        end = begin + id_size + name_size
        if end > len(raw):
            return
        if extra >= 8:
            # The 64-bit size of the VM state, a later addition.
            (state,) = struct.unpack_from(">Q", raw, offset + size)
        yield Snapshot(
            id=raw[begin : begin + id_size].decode(errors="replace"),
            name=raw[begin + id_size : end].decode(errors="replace"),
            time_s=seconds + nanoseconds / 10**9,
            vm_clock_ns=clock,
            vm_state_bytes=state,
        )
        offset += -(-(end - offset) // 8) * 8


def _parse(raw: bytes, handle: BinaryIO, path: str | Path) -> Header:
    if len(raw) < 72:
        raise ImageError(f"image {path} is truncated inside its qcow2 header")
    version, backing_at, backing_size, bits, size, crypt = struct.unpack(">IQIIQI", raw[4:36])
    if version not in (2, 3):
        raise ImageError(f"image {path} is qcow version {version}; use qemu-img convert")
    if not 9 <= bits <= 21:
        raise ImageError(f"image {path} is damaged: clusters of 2^{bits} bytes do not exist")
    features = 0
    if version == 3:
        if len(raw) < 104:
            raise ImageError(f"image {path} is truncated inside its qcow2 header")
        (features,) = struct.unpack(">Q", raw[72:80])
        if features & ~_KNOWN_INCOMPATIBLE:
            raise ImageError(f"image {path} needs unknown qcow2 features ({features:#x})")
    begin = struct.unpack(">I", raw[100:104])[0] if version == 3 else 72
    has_data_file = bool(features & _EXTERNAL_DATA)
    # QEMU reads extensions up to the backing file's name, if there is one.
    extensions = _extensions(handle, path, begin, backing_at or 1 << bits)
    return Header(
        version=version,
        size_bytes=size,
        cluster_bytes=1 << bits,
        backing_file=_name(handle, path, backing_at, backing_size, 1 << bits),
        backing_format=extensions.get(_BACKING_FORMAT),
        has_data_file=has_data_file,
        # Without the feature, QEMU ignores the name.
        data_file=extensions.get(_DATA_FILE) if has_data_file else None,
        is_encrypted=bool(crypt),
        is_corrupt=bool(features & 2),
        has_snapshots=raw[60:64] != bytes(4),
    )


def _name(
    handle: BinaryIO, path: str | Path, offset: int, size: int, cluster_bytes: int
) -> str | None:
    if not offset:
        return None
    # QEMU, too, accepts the name in the first cluster only.
    if size > 1023 or offset + size > cluster_bytes:
        raise ImageError(f"image {path} is damaged: its backing file's name is not a name")
    handle.seek(offset)
    name = handle.read(size).decode(errors="replace")
    if "\0" in name:
        raise ImageError(f"image {path} is damaged: its backing file's name is not a name")
    return name


def _extensions(handle: BinaryIO, path: str | Path, offset: int, end: int) -> dict[int, str]:
    """Return ``{kind: name}`` of a header's extensions; the last of a kind counts, as in QEMU."""
    out: dict[int, str] = {}
    for _ in range(_EXTENSIONS):
        handle.seek(offset)
        begin = handle.read(8) if offset + 8 <= end else b""
        kind, size = struct.unpack(">II", begin) if len(begin) == 8 else (0, 0)
        if not kind:
            return out
        if kind in (_BACKING_FORMAT, _DATA_FILE) and size <= _NAME_BYTES:
            # QEMU ends a name at the first NUL.
            raw_name, _, _ = handle.read(size).partition(b"\0")
            out[kind] = raw_name.decode(errors="replace")
        offset += 8 + -(-size // 8) * 8
    raise ImageError(f"image {path} is damaged: it has more than {_EXTENSIONS} header extensions")


_FILE, _JSON = "file:", "json:"
# Drivers that open a file of the host without giving its format.
_OF_FILES = ("file", "host_device", "host_cdrom")
_DEPTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class BackingFile:
    """
    A backing file.

    path
        Absolute, or relative to the folder of its overlay.
    is_raw
        Whether its format is given as raw, so that its content is never interpreted.
    """

    path: str
    is_raw: bool


def files_from_name(name: str, fmt: str | None) -> list[BackingFile]:
    """
    Return the files that a name in a header refers to.

    A network source, such as ``nbd://host/x``, yields a path without a file. A name that cannot be
    a path yields nothing.

    fmt
        The format that the header gives.
    """
    if name.startswith(_JSON):
        try:
            description = json.loads(name.removeprefix(_JSON))
        except (ValueError, RecursionError):
            return []
        return (
            [*_files_from_json(description, fmt == "raw", _DEPTH)]
            if isinstance(description, dict)
            else []
        )
    path = name.removeprefix(_FILE)
    return [BackingFile(path=path, is_raw=fmt == "raw")] if _is_path(path) else []


def _is_path(text: str) -> bool:
    """Return whether the system accepts a text, which a guest may have forged, as a path."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _files_from_json(
    description: Mapping[str, Any], is_raw: bool, depth: int
) -> Iterator[BackingFile]:
    """Yield the files of a description; its keys may be nested or joined with dots."""
    if not depth:
        return
    description = _nest_keys(description)
    driver = description.get("driver")
    if isinstance(driver, str) and driver not in _OF_FILES:
        is_raw = driver == "raw"
    path = description.get("filename")
    if isinstance(path, str):
        yield from files_from_name(path, "raw" if is_raw else None)
    for value in description.values():
        if isinstance(value, dict):
            yield from _files_from_json(value, is_raw, depth - 1)


def _nest_keys(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``{"file": {"filename": path}}`` for ``{"file.filename": path}``."""
    out: dict[str, Any] = {}
    for key, value in description.items():
        first, dot, subkey = str(key).partition(".")
        if not dot:
            out[first] = {**_mapping(out.get(first)), **value} if isinstance(value, dict) else value
        else:
            out[first] = {**_mapping(out.get(first)), subkey: value}
    return out


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
