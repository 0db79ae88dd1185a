"""
Read names of volumes that are not UTF-8, or that XML cannot hold.

A file of any name may lie in a pool's folder, and a guest may write any bytes where libvirt reads a
backing file's name. libvirt-python raises UnicodeDecodeError for such a text: one file would hide
all volumes of all pools. These functions escape such bytes, as ``a\\xff.raw``. No function of
libvirt finds a volume by an escaped name, so none changes such a volume by mistake.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

from saltvirt.xml import parse

# Characters that are UTF-8, but that XML forbids.
_UNREADABLE = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\ufffe\\uffff]")


def text(method: Callable[[], str]) -> str:
    """Return the text that a method of libvirt-python returns, with bytes not in UTF-8 escaped."""
    try:
        return method()
    except UnicodeDecodeError as exc:
        return exc.object.decode("utf-8", "backslashreplace")


def is_text(method: Callable[[], str]) -> bool:
    """Return whether a method of libvirt-python returns UTF-8."""
    try:
        method()
    except UnicodeDecodeError:
        return False
    return True


def read_volume_xml(volume: Any) -> ET.Element:
    """Return the XML of a volume, with all that is not UTF-8 or not XML escaped."""
    xml_text = text(lambda: volume.XMLDesc(0))
    return parse(_UNREADABLE.sub(lambda match: f"\\x{ord(match[0]):02x}", xml_text))


def names(pool: Any) -> list[str]:
    """Return the names of the volumes of a running pool, usually by one call."""
    try:
        volume_names: list[str] = pool.listVolumes()
    except UnicodeDecodeError:
        return [text(volume.name) for volume in pool.listAllVolumes(0)]
    return volume_names


def find_unreadable_names(pool: Any) -> list[str]:
    """Return the names, escaped, of a running pool's volumes that are not UTF-8."""
    try:
        pool.listVolumes()
    except UnicodeDecodeError:
        volumes = pool.listAllVolumes(0)
        return [text(volume.name) for volume in volumes if not is_text(volume.name)]
    return []
