"""File contents without holes: files with equal data are equal wherever their holes are."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from saltvirt.core import files

_BLOCK = 64 * 1024
_ZERO = bytes(_BLOCK)
_PIECE = 1024 * 1024
# Salt modules, which are in the library's folder where it was installed and not synced.
_INSTALLED = {"modules", "runners", "states", "pillar", "grains", "output"}


class Digest:
    """
    The digest of a file's data, which is fed in rising order.

    It is the SHA-256 of the number and content of each block of 64 KiB that is not all zero, and of
    the file's size.
    """

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._number, self._block = 0, bytearray(_BLOCK)

    def feed(self, offset: int, data: bytes) -> None:
        """Add data that is at ``offset`` of the file."""
        view = memoryview(data)
        while view:
            number, start = divmod(offset, _BLOCK)
            if number != self._number:
                self._flush()
                self._number = number
            piece = view[: _BLOCK - start]
            self._block[start : start + len(piece)] = piece
            view, offset = view[len(piece) :], offset + len(piece)

    def _flush(self) -> None:
        if self._block != _ZERO:
            self._sha.update(self._number.to_bytes(8, "big"))
            self._sha.update(self._block)
            self._block = bytearray(_BLOCK)

    def end(self, size_bytes: int) -> str:
        """Return the digest of a file of this size."""
        self._flush()
        self._sha.update(size_bytes.to_bytes(8, "big"))
        return self._sha.hexdigest()


def in_hole(descriptor: int) -> tuple[bool, int]:
    """Return ``(is data, bytes until that changes)`` at the current position of a file."""
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    end = os.fstat(descriptor).st_size
    if position >= end:
        return False, 0
    try:
        data = os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError:
        data = end
    next_edge = os.lseek(descriptor, position, os.SEEK_HOLE) if data == position else data
    os.lseek(descriptor, position, os.SEEK_SET)
    return data == position, next_edge - position


def digest(path: str | Path) -> str:
    """Return the :class:`Digest` of a file, read from its disk and not from the page cache."""
    out = Digest()
    with open(path, "rb", buffering=0, opener=files.open_by_trusted_links) as handle:
        os.fsync(handle.fileno())
        os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for offset, data in _data(handle):
            out.feed(offset, data)
        return out.end(os.fstat(handle.fileno()).st_size)


def _data(handle: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield ``(offset, data)`` of a file, without its holes."""
    while True:
        is_data, count = in_hole(handle.fileno())
        if not count:
            return
        if not is_data:
            handle.seek(count, os.SEEK_CUR)
            continue
        yield handle.tell(), handle.read(min(count, _PIECE))


def signature(path: str | Path) -> list[int]:
    """Return what changes whenever a file is written to: its inode, size and time."""
    stat = os.stat(path)
    return [stat.st_ino, stat.st_size, stat.st_mtime_ns]


def of_code(folder: Path | None = None) -> str:
    """
    Return a digest of this library's own files, by which two machines compare their versions.

    folder
        The library's folder. Defaults to the library that this file is part of.
    """
    top, sha = folder or Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(top.rglob("*.py"), key=lambda file: file.relative_to(top).as_posix()):
        name = path.relative_to(top)
        if name.parts[0] not in _INSTALLED:
            data = path.read_bytes()
            sha.update(f"{name.as_posix()}\0{len(data)}\0".encode() + data)
    return sha.hexdigest()
