"""Files that are replaced in one step: a crash at any byte leaves the old content or the new."""

import contextlib
import os
import re
from pathlib import Path


def private(path, flags):
    """Open a file that nobody else may read; an ``opener`` for :func:`open`."""
    return os.open(path, flags, 0o600)


def write(path, data, mode=0o600, gid=None):
    """Replace a file in one step, on the disk when this returns; ``gid`` becomes its group."""
    replace([(path, data, mode, gid)])


def replace(files):
    """
    Replace files that belong together: all are on the disk before the first takes its place.

    files
        ``[(path, data, mode, gid or None)]``.
    """
    parts = [(part_path(Path(path).parent, Path(path).name), Path(path), *rest)
             for path, *rest in files]  # fmt: skip
    try:
        for part, _path, data, mode, gid in parts:
            _write_part(part, data, mode, gid)
        for part, path, *_rest in parts:
            part.rename(path)
    except BaseException:
        for part, *_rest in parts:
            with contextlib.suppress(OSError):
                part.unlink()
        raise
    for folder in {path.parent for _part, path, *_rest in parts}:
        _fsync_folder(folder)


def _fsync_folder(folder):
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:
        # One that may be written in and not be read (1733): its file is there, so this is no error.
        os.sync()
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def part_path(folder, name):
    """Return where this process writes a file before it takes its place; see :func:`sweep`."""
    return Path(folder) / f".{os.getpid()}-{name}.part"


def whole_path(path):
    """Return what a part takes the place of; any other path as it is."""
    found = re.fullmatch(r"\.\d+-(.+)\.part", path.name)
    return path.with_name(found[1]) if found else path


def _write_part(part, data, mode, gid):
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(handle, "wb") as out:
        # A mode that the umask narrowed, say for QEMU's group, would lock the reader out.
        os.fchmod(handle, mode)
        if gid is not None:
            os.fchown(handle, -1, gid)
        out.write(data)
        out.flush()
        os.fsync(handle)


def sweep(folder):
    """Remove the parts of a folder whose process died; those of a live one are left alone."""
    for part in Path(folder).glob(".*.part"):
        owner = part.name.lstrip(".").split("-")[0]
        if not (owner.isdigit() and Path(f"/proc/{owner}").exists()):
            with contextlib.suppress(FileNotFoundError):
                part.unlink()
