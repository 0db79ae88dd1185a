"""
Names of volumes that are not UTF-8, or that XML cannot hold.

A file of any name may lie in the folder of a pool, and a guest may write any bytes where libvirt
looks for the name of a backing file. libvirt-python raises UnicodeDecodeError for such a text: one
file would hide all volumes of all pools. Here such bytes are shown escaped, as ``a\\xff.raw``. No
function of libvirt takes that name, so nothing can be done to such a volume by mistake.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

from saltvirt.xml import parse

# What no XML parser takes, though it is UTF-8.
_UNREADABLE = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\ufffe\\uffff]")


def text(method: Callable[[], str]) -> str:
    """Return what a method of libvirt-python says; bytes that are not UTF-8 are escaped."""
    try:
        return method()
    except UnicodeDecodeError as exc:
        return exc.object.decode("utf-8", "backslashreplace")


def is_text(method: Callable[[], str]) -> bool:
    """Return whether what a method of libvirt-python says is UTF-8."""
    try:
        method()
    except UnicodeDecodeError:
        return False
    return True


def read_volume_xml(volume: Any) -> ET.Element:
    """Return the XML of a volume; what is not UTF-8, or no XML, is escaped."""
    xml_text = text(lambda: volume.XMLDesc(0))
    return parse(_UNREADABLE.sub(lambda match: f"\\x{ord(match[0]):02x}", xml_text))


def names(pool: Any) -> list[str]:
    """Return the names of the volumes of a pool that runs, mostly by one call."""
    try:
        volume_names: list[str] = pool.listVolumes()
    except UnicodeDecodeError:
        return [text(volume.name) for volume in pool.listAllVolumes(0)]
    return volume_names


def find_unreadable_names(pool: Any) -> list[str]:
    """Return the names, escaped, of the volumes of a pool that runs that are not UTF-8."""
    try:
        pool.listVolumes()
    except UnicodeDecodeError:
        volumes = pool.listAllVolumes(0)
        return [text(volume.name) for volume in volumes if not is_text(volume.name)]
    return []
