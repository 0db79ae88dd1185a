"""The file in which a VM's firmware keeps its variables."""

import os
from pathlib import Path
from typing import Any

from saltvirt.errors import NoSuchVm
from saltvirt.kvm import lifecycle, query
from saltvirt.xml import read


def has_variables(conn: Any, name: str) -> bool:
    """Return whether that file of a defined VM is there already."""
    # By the definition: libvirt says there where it will be.
    noted = read.firmware_variables(read.domain(lifecycle.kept_xml(conn, name)))
    return noted is not None and Path(noted).exists()


def has_anothers(conn: Any, name: str) -> bool:
    """Return whether another VM has that file of a VM too, as one whose definition was copied."""
    own = _noted(conn, name)
    return own is not None and any(
        _noted(conn, other) == own for other in query.names(conn) if other != name
    )


def _noted(conn: Any, name: str) -> str | None:
    try:
        noted = read.firmware_variables(read.domain(lifecycle.kept_xml(conn, name)))
    except NoSuchVm:
        return None  # it has gone since
    return None if noted is None else os.path.realpath(noted)
