"""Find the file of a VM's firmware variables."""

import os
from pathlib import Path
from typing import Any

from saltvirt.core.errors import NoSuchVm
from saltvirt.libvirt.domains import lifecycle, query
from saltvirt.xml.edit import readdomain


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
