"""A <disk> that is defined as a file, and is a device of the host."""

import xml.etree.ElementTree as ET
from collections.abc import Callable


def make_block_disks(root: ET.Element, is_device: Callable[[str], bool]) -> bool:
    """
    Turn each disk of a domain that is defined as a file, and is a device, into type ``block``.

    Returns whether there was any. Salt 3006 defined such disks, and QEMU starts none of them.
    """
    disks = [
        element
        for element in root.iterfind("devices/disk[@type='file']")
        if _is_on_device(element, is_device)
    ]
    for disk in disks:
        disk.set("type", "block")
        source = disk.find("source")
        if source is not None:
            source.set("dev", source.attrib.pop("file"))
    return bool(disks)


def _is_on_device(disk: ET.Element, is_device: Callable[[str], bool]) -> bool:
    source = disk.find("source")
    path = source.get("file") if source is not None else None
    return path is not None and is_device(path)
