"""The file in which a VM's firmware keeps its variables."""

import os
from pathlib import Path
from typing import Any

from saltvirt.errors import NoSuchVm
from saltvirt.kvm import lifecycle, query
from saltvirt.xml import read


def has_variables(conn: Any, name: str) -> bool:
    """Return whether that file of a defined VM is there already."""
    path = _find_variables_path(conn, name)
    try:
        return path is not None and Path(path).exists()
    except OSError:
        return True  # it may be, where this process may not look


def has_shared_variables(conn: Any, name: str) -> bool:
    """Return whether another VM has that file of a VM too, as one whose definition was copied."""
    path = _find_real_path(conn, name)
    return path is not None and any(
        _find_real_path(conn, vm) == path for vm in query.names(conn) if vm != name
    )


def _find_variables_path(conn: Any, name: str) -> str | None:
    # By the definition: libvirt says there where it will be.
    return read.firmware_variables(read.domain(lifecycle.inactive_xml(conn, name)))


def _find_real_path(conn: Any, name: str) -> str | None:
    """Return where that file really is; None if there is none, or the VM has gone since."""
    try:
        path = _find_variables_path(conn, name)
    except NoSuchVm:
        return None
    return None if path is None else os.path.realpath(path)
