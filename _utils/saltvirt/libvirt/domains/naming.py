"""Give a domain another name."""

from typing import Any

from saltvirt.libvirt.connect import domain


def set_name(conn: Any, name: str, new_name: str) -> None:
    """Rename a stopped domain; libvirt refuses what it cannot carry, such as snapshots."""
    domain(conn, name).rename(new_name, 0)
