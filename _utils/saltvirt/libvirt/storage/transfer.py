"""Copy a volume's content to and from a file of this host, through libvirt's streams."""

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Any

from saltvirt.core import files
from saltvirt.core.errors import BadArgument, StorageError
from saltvirt.libvirt.connect import libvirt
from saltvirt.libvirt.storage import volumes


class _Window:
    """The part of a file that is sent: its first ``length`` bytes, or all of it."""

    def __init__(self, handle: int, length: int) -> None:
        self.handle = handle
        size = os.lseek(handle, 0, os.SEEK_END)
        os.lseek(handle, 0, os.SEEK_SET)
        self.end = min(size, length) if length else size

    def left(self) -> int:
        """Return the number of remaining bytes."""
        return max(self.end - os.lseek(self.handle, 0, os.SEEK_CUR), 0)

    def read(self, count: int) -> bytes:
        """Return the next bytes, none at the end; raise OSError if the file was truncated."""
        self._refuse_cut()
        return os.read(self.handle, min(count, self.left()))

    def _refuse_cut(self) -> None:
        position = os.lseek(self.handle, 0, os.SEEK_CUR)
        size = os.lseek(self.handle, 0, os.SEEK_END)
        os.lseek(self.handle, position, os.SEEK_SET)
        if size < self.end:
            raise OSError(errno.EIO, "it has become shorter meanwhile")

    def section(self) -> list[Any]:
        """Return ``[is data, length]`` of the next section: data, or a hole."""
        self._refuse_cut()
        position = os.lseek(self.handle, 0, os.SEEK_CUR)
        try:
            data = os.lseek(self.handle, position, os.SEEK_DATA)
            end = os.lseek(self.handle, position, os.SEEK_HOLE) if data == position else data
        except OSError as exc:
            if exc.errno != errno.ENXIO:
                raise
            # Only a hole up to the end.
            data, end = -1, self.end
        os.lseek(self.handle, position, os.SEEK_SET)
        return [data == position and self.left() > 0, max(min(end, self.end) - position, 0)]

    def skip(self, length: int) -> int:
        """Skip a hole."""
        return os.lseek(self.handle, length, os.SEEK_CUR)


def upload(
    conn: Any, pool: str, volume: str, file: str, *, offset: int, length: int, is_sparse: bool
) -> None:
    """Write a file's content into a volume, from ``offset`` on; ``length`` 0 means all of it."""
    handle = _open_source(file)
    try:
        libvirt_volume = volumes.lookup(conn, pool, volume)
        volumes.refuse_running(conn, pool, volume)
        window = _Window(handle, length)
        is_sparse = is_sparse and _takes_holes(libvirt_volume, offset + window.end)
        stream = conn.newStream(0)
        try:
            flags = libvirt.VIR_STORAGE_VOL_UPLOAD_SPARSE_STREAM if is_sparse else 0
            libvirt_volume.upload(stream, offset, window.end, flags)
            _send(stream, window, is_sparse)
            stream.finish()
        except BaseException as exc:
            _abort(stream)
            if isinstance(exc, OSError):
                raise StorageError(f"cannot read {file}: {exc.strerror}") from exc
            raise
    finally:
        os.close(handle)


def _takes_holes(libvirt_volume: Any, end: int) -> bool:
    """
    Return whether a volume gets the right content if holes are not sent.

    In a device, libvirt writes zeros for a hole. In a file it keeps old data there, and truncates
    the file after the hole: all data beyond the sent part is lost.
    """
    kind, capacity, allocation = libvirt_volume.info()
    is_device = bool(kind != libvirt.VIR_STORAGE_VOL_FILE)
    return is_device or bool(allocation == 0 and end >= capacity)


def _open_source(file: str) -> int:
    try:
        # O_NONBLOCK: opening a pipe would block.
        handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as exc:
        raise BadArgument("file", f"{file}: {exc}") from exc
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode) or stat.S_ISBLK(mode):
        return handle
    os.close(handle)
    raise BadArgument("file", f"{file} is neither a file nor a block device")


def _send(stream: Any, window: _Window, is_sparse: bool) -> None:
    def read(_stream: Any, count: int, _opaque: Any) -> bytes:
        return window.read(count)

    if is_sparse:
        stream.sparseSendAll(
            read,
            lambda _stream, _opaque: window.section(),
            lambda _stream, count, _opaque: window.skip(count),
            None,
        )
    else:
        stream.sendAll(read, None)


def _abort(stream: Any) -> None:
    # libvirt may have ended the stream itself.
    with contextlib.suppress(libvirt.libvirtError):
        stream.abort()


def download(
    conn: Any, pool: str, volume: str, file: str, *, offset: int, length: int, is_sparse: bool
) -> None:
    """Write a volume's content into a new file that only root can read; remove it on failure."""
    if not str(file).startswith("/"):
        raise BadArgument("file", f"{file!r} is not an absolute path")
    libvirt_volume = volumes.lookup(conn, pool, volume)
    try:
        handle = files.private(Path(file), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        raise StorageError(f"a file {file} is there already; nothing is written over") from None
    except OSError as exc:
        raise BadArgument("file", f"{file}: {exc.strerror}") from exc
    try:
        _receive(conn, libvirt_volume, handle, offset, length, is_sparse)
        os.fsync(handle)
    except BaseException as exc:
        Path(file).unlink(missing_ok=True)
        if isinstance(exc, OSError):
            raise StorageError(f"cannot write {file}: {exc.strerror}") from exc
        raise
    finally:
        os.close(handle)


def _receive(
    conn: Any, libvirt_volume: Any, handle: int, offset: int, length: int, is_sparse: bool
) -> None:
    stream = conn.newStream(0)
    try:
        flags = libvirt.VIR_STORAGE_VOL_DOWNLOAD_SPARSE_STREAM if is_sparse else 0
        libvirt_volume.download(stream, offset, length, flags)
        if is_sparse:
            stream.sparseRecvAll(_write, _write_hole, handle)
            # A hole at the end was only skipped.
            os.ftruncate(handle, os.lseek(handle, 0, os.SEEK_CUR))
        else:
            stream.recvAll(_write, handle)
        stream.finish()
    except BaseException:
        _abort(stream)
        raise


def _write(_stream: Any, data: bytes, handle: int) -> int:
    remaining = memoryview(data)
    while remaining:
        # On a disk that fills up, os.write writes a part without an error.
        remaining = remaining[os.write(handle, remaining) :]
    return len(data)


def _write_hole(_stream: Any, length: int, handle: int) -> int:
    return os.lseek(handle, length, os.SEEK_CUR)
