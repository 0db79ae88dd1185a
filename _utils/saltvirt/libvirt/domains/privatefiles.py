"""Keep the files that libvirt makes for a domain's disks private."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from saltvirt.libvirt.domains import lifecycle


@contextmanager
def restrict_new_files(conn: Any, name: str) -> Iterator[None]:
    """
    Make a domain's new disk files readable by their owner only, after the block.

    libvirt before 11.10 lets all users read a file that it makes for a domain that is off
    (CVE-2025-13193). Such a file has no data of the guest until the domain starts.
    """
    paths_before = {*lifecycle.file_paths(conn, name)}
    try:
        yield
    finally:
        for path in map(Path, lifecycle.file_paths(conn, name)):
            if str(path) not in paths_before and path.is_file():
                path.chmod(path.stat().st_mode & stat.S_IRWXU)


def is_world_readable(path: str) -> bool:
    """Return whether all users of this host can read a file, through all folders above it."""
    real = Path(os.path.realpath(path))
    try:
        folders_let_in = all(folder.stat().st_mode & stat.S_IXOTH for folder in real.parents)
        return bool(folders_let_in and real.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False
