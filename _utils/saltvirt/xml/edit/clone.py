"""The XML of a VM that is a clone of another one, and of the volumes for its disks."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from saltvirt.core.errors import StorageError
from saltvirt.xml import parse, set_first, tag, to_text
from saltvirt.xml.domain import chardev
from saltvirt.xml.edit import amend
from saltvirt.xml.storage import storagevolume

_AGENT = "org.qemu.guest_agent.0"
_FORMATS = ("qcow2", "raw")
# Two VMs would write to one such file, or read from one such device.
_ENDS_OF_HOST = ("file", "pipe", "dev")


@dataclass(frozen=True, slots=True)
class Writable:
    """A disk that a clone needs a copy of: its device's name, its file, its format."""

    target: str
    path: str
    format: str


def writable(text: str) -> list[Writable]:
    """
    Return the disks that two VMs cannot share.

    Raises StorageError for a disk that is no file, or of a format that cannot be copied.
    """
    return [_writable(disk) for disk in exclusive_disks(parse(text))]


def exclusive_disks(root: ET.Element) -> list[ET.Element]:
    """Return the disks that only one VM may have."""
    return [
        disk
        for disk in root.findall("devices/disk")
        if disk.get("device", "disk") in ("disk", "lun")
        and disk.find("readonly") is None
        and disk.find("shareable") is None
    ]


def _writable(disk: ET.Element) -> Writable:
    target, source, driver = disk.find("target"), disk.find("source"), disk.find("driver")
    name = (target.get("dev") if target is not None else None) or "?"
    path = source.get("file") if source is not None else None
    kind = driver.get("type", "raw") if driver is not None else "raw"
    if disk.get("type") != "file" or not path:
        raise StorageError(
            f"disk {name} is of type {disk.get('type')}, and only files in a storage pool are "
            "copied; move it into a pool, or remove it from the base domain"
        )
    if kind not in _FORMATS:
        raise StorageError(f"disk {name}: format {kind!r} is not copied; only qcow2 and raw are")
    return Writable(name, path, kind)


def domain(
    text: str, name: str, base: str, paths: Mapping[str, str], *, learn_addresses: bool
) -> str:
    """
    Return the definition of a clone.

    text
        The base's persistent definition.
    paths
        ``{file of the base's disk: file of the clone's}``.
    learn_addresses
        Whether libvirt's filter learns the addresses of NICs that do not configure that themselves.

    libvirt makes anew what must not exist twice: UUID, MAC addresses, the firmware's variables, the
    socket of the guest's agent. The console's log stays the base's own, and so do the host's ends
    of its serial ports and consoles.
    """
    root = parse(text)
    amend.remove_children(root, "uuid")
    set_first(root, "name", name)
    set_first(root, "description", f"Cloned from {base}")
    for disk in exclusive_disks(root):
        disk.find("source").set("file", paths[disk.find("source").get("file")])  # type: ignore
        amend.remove_children(disk, "backingStore")
    for nic in root.findall("devices/interface"):
        amend.remove_children(nic, "mac")
        if learn_addresses and nic.find("filterref/parameter[@name='CTRL_IP_LEARNING']") is None:
            amend.remove_children(nic, "filterref")
            parameter = tag("parameter", {"name": "CTRL_IP_LEARNING", "value": "any"})
            nic.append(tag("filterref", {"filter": "clean-traffic"}, parameter))
    for channel in root.findall("devices/channel[@type='unix']"):
        if channel.find(f"target[@name='{_AGENT}']") is not None:
            amend.remove_children(channel, "source")
    replace_by_ptys(root)
    for device in (*root.findall("devices/serial"), *root.findall("devices/console")):
        amend.remove_children(device, "log")
    for element in (*root.findall("os/nvram"), *root.findall("genid")):
        clear_source(element)
    return to_text(root)


def find_host_chardevs(root: ET.Element) -> Iterator[tuple[ET.Element, str]]:
    """Yield serial ports, consoles and channels at a file or device of the host, with its path."""
    for device in root.findall("devices/*"):
        source = device.find("source")
        if device.tag not in (*chardev.ELEMENTS, "parallel") or source is None:
            continue
        # libvirt itself names the socket of a channel.
        binds = (
            device.get("type") == "unix"
            and source.get("mode") == "bind"
            and device.tag != "channel"
        )
        if binds or device.get("type") in _ENDS_OF_HOST:
            yield device, source.get("path", "")


def replace_by_ptys(root: ET.Element) -> None:
    """Turn character devices of a copy into ptys where only one VM can have the host's end."""
    for device, _path in find_host_chardevs(root):
        device.set("type", "pty")
        for part in ("source", "protocol"):
            amend.remove_children(device, part)


def clear_source(element: ET.Element) -> None:
    """Remove what an element names, by its text or by a source, so that libvirt chooses it."""
    element.text = None
    amend.remove_children(element, "source")
    element.attrib.pop("type", None)


def volume(name: str, capacity: int, kind: str, backing: str | None = None) -> str:
    """
    Return the XML of a volume.

    capacity
        In bytes.
    backing
        The qcow2 file below an overlay; None for a volume without one.
    """
    base = None if backing is None else storagevolume.Backing(path=backing, format="qcow2")
    definition = storagevolume.Volume(
        name=name, capacity=capacity, allocation=0, format=kind, backing=base
    )
    return to_text(storagevolume.build(definition))


def exclusive_files(text: str) -> list[str]:
    """Return the disk files that only this VM may have."""
    sources = (
        disk.find("source") for disk in exclusive_disks(parse(text)) if disk.get("type") == "file"
    )
    return [source.get("file", "") for source in sources if source is not None]


def backing(text: str) -> str | None:
    """Return the path below a volume that is an overlay, else None."""
    return parse(text).findtext("backingStore/path")
