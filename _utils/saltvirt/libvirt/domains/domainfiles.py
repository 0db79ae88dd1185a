"""Files of a domain: the firmware's variables, and who may read its new disk files."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from saltvirt.core.errors import NoSuchVm
from saltvirt.libvirt.domains import lifecycle, query
from saltvirt.xml.edit import readdomain


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


def has_variables(conn: Any, name: str) -> bool:
    """Return whether the variables' file of a defined VM exists."""
    path = _find_variables_path(conn, name)
    try:
        return path is not None and Path(path).exists()
    except OSError:
        return True  # assume so in a folder that this process may not search


def has_shared_variables(conn: Any, name: str) -> bool:
    """Return whether another VM has the same variables' file, as after a copied definition."""
    path = _find_real_path(conn, name)
    return path is not None and any(
        _find_real_path(conn, vm) == path for vm in query.names(conn) if vm != name
    )


def _find_variables_path(conn: Any, name: str) -> str | None:
    # The definition names the file even before libvirt creates it.
    return readdomain.firmware_variables(readdomain.domain(lifecycle.inactive_xml(conn, name)))


def _find_real_path(conn: Any, name: str) -> str | None:
    """Return the file's resolved path; None without a file, or if the VM has vanished."""
    try:
        path = _find_variables_path(conn, name)
    except NoSuchVm:
        return None
    return None if path is None else os.path.realpath(path)
