"""The file in which a VM's firmware keeps its variables."""

import os
from pathlib import Path
from typing import Any

from saltvirt.errors import NoSuchVm
from saltvirt.kvm import lifecycle, query
from saltvirt.xml import read


def has_variables(conn: Any, name: str) -> bool:
    """Return whether that file of a defined VM is there already."""
    noted = _noted(conn, name)
    try:
        return noted is not None and Path(noted).exists()
    except OSError:
        return True  # it may be, where this process may not look


def has_anothers(conn: Any, name: str) -> bool:
    """Return whether another VM has that file of a VM too, as one whose definition was copied."""
    own = _place(conn, name)
    return own is not None and any(
        _place(conn, other) == own for other in query.names(conn) if other != name
    )


def _noted(conn: Any, name: str) -> str | None:
    # By the definition: libvirt says there where it will be.
    return read.firmware_variables(read.domain(lifecycle.kept_xml(conn, name)))


def _place(conn: Any, name: str) -> str | None:
    """Return where that file really is; None if there is none, or the VM has gone since."""
    try:
        noted = _noted(conn, name)
    except NoSuchVm:
        return None
    return None if noted is None else os.path.realpath(noted)
