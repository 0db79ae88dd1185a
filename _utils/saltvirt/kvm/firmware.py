"""The file in which a VM's firmware keeps its variables."""

from pathlib import Path
from typing import Any

from saltvirt.kvm import lifecycle
from saltvirt.xml import read


def has_variables(conn: Any, name: str) -> bool:
    """Return whether that file of a defined VM is there already."""
    # By the definition: libvirt says there where it will be.
    noted = read.firmware_variables(read.domain(lifecycle.kept_xml(conn, name)))
    return noted is not None and Path(noted).exists()
