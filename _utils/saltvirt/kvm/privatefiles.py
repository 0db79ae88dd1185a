"""Who may read the files that libvirt makes for the disks of a domain."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from saltvirt.kvm import lifecycle


@contextmanager
def restrict_new_files(conn: Any, name: str) -> Iterator[None]:
    """
    Have the files in which a domain's disks go on after the block readable by their owner alone.

    libvirt before 11.10 lets all users read what it makes for a domain that is off
    (CVE-2025-13193). Nothing of the guest is in such a file before it starts.
    """
    paths_before = {*lifecycle.file_paths(conn, name)}
    try:
        yield
    finally:
        for path in map(Path, lifecycle.file_paths(conn, name)):
            if str(path) not in paths_before and path.is_file():
                path.chmod(path.stat().st_mode & stat.S_IRWXU)


def is_world_readable(path: str) -> bool:
    """Return whether any user of this host can read a file: it, and each folder on the way."""
    real = Path(os.path.realpath(path))
    try:
        folders_let_in = all(folder.stat().st_mode & stat.S_IXOTH for folder in real.parents)
        return bool(folders_let_in and real.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False
