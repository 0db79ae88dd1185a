"""The devices of a <domain> that a call can list: their identities and their names."""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from saltvirt.xml.domain import disk, hostdev, nic
from saltvirt.xml.edit import amend, devicematch

_Requested = TypeVar("_Requested")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKind:
    """
    A kind of device.

    argument
        The argument of a call that lists such devices.
    element
        The name of their XML elements.
    name
        Returns the name of a device in one <domain>; None for one that no call can name.
    content
        Returns what makes a device the same one in several <domain>s.
    describe
        Returns a device as messages call it.
    """

    argument: str
    element: str
    name: Callable[[ET.Element], str | None]
    content: Callable[[ET.Element], object]
    describe: Callable[[ET.Element], str]

    def by_name(self, root: ET.Element) -> dict[str, ET.Element]:
        """Return ``{name: element}`` of the devices of a <domain> that calls can name."""
        names = ((self.name(element), element) for element in self.list(root))
        return {name: element for name, element in names if name is not None}

    def list(self, root: ET.Element) -> list[ET.Element]:
        """Return the devices of a <domain>, without the seed."""
        return [
            element
            for element in amend.devices(root, self.element)
            if self.element != "disk" or not devicematch.is_seed(element)
        ]


def match(
    requested: Sequence[_Requested],
    elements: Iterable[ET.Element],
    passes: Iterable[Callable[[_Requested, ET.Element], bool]],
) -> list[ET.Element | None]:
    """
    Return the element that each requested device means, None for a new device.

    passes
        Whether an element is a requested device; each pass matches those that are left.
    """
    candidates, matches = list(elements), dict[int, ET.Element]()
    for is_same in passes:
        for number, device in enumerate(requested):
            if number in matches:
                continue
            element = next((item for item in candidates if is_same(device, item)), None)
            if element is not None:
                matches[number] = element
                candidates.remove(element)
    return [matches.get(number) for number in range(len(requested))]


def target_of(element: ET.Element) -> str:
    """Return the target of a <disk>."""
    return disk.read(element).target.get("dev", "")


def _disk_content(element: ET.Element) -> object:
    return devicematch.content(disk.read(element))


def _describe_disk(element: ET.Element) -> str:
    vm_disk = disk.read(element)
    path_text = f" ({vm_disk.path})" if vm_disk.path else ""
    return f"{vm_disk.device or 'disk'} {vm_disk.target.get('dev')}{path_text}"


def mac_of(element: ET.Element) -> str:
    """Return the MAC address of an <interface>, in lower case."""
    return (nic.read(element).mac or "").lower()


def _describe_nic(element: ET.Element) -> str:
    interface = nic.read(element)
    place = f"{interface.type} {devicematch.place(interface)[1] or ''}".rstrip()
    return f"NIC {interface.mac} ({place})"


def _host_device_name(element: ET.Element) -> str | None:
    key = host_device_key(element)
    return None if key is None else " ".join(map(str, key))


def host_device_key(element: ET.Element) -> tuple[Any, ...] | None:
    """Return what a <hostdev> passes through; None for a device that calls cannot name."""
    return devicematch.host_device_key(hostdev.read(element))


def _describe_host_device(element: ET.Element) -> str:
    host_device = hostdev.read(element)
    if host_device.type == "usb":
        maker, product = host_device.vendor or {}, host_device.product or {}
        return f"USB device {maker.get('id')}:{product.get('id')}"
    numbers = devicematch.parse_pci_address(host_device.address) or (0, 0, 0, 0)
    return "PCI device {:04x}:{:02x}:{:02x}.{:x}".format(*numbers)


DISK = DeviceKind(
    argument="disks",
    element="disk",
    name=target_of,
    content=_disk_content,
    describe=_describe_disk,
)
NIC = DeviceKind(
    argument="interfaces", element="interface", name=mac_of, content=mac_of, describe=_describe_nic
)
HOST_DEVICE = DeviceKind(
    argument="host_devices",
    element="hostdev",
    name=_host_device_name,
    content=host_device_key,
    describe=_describe_host_device,
)
KINDS = {kind.element: kind for kind in (DISK, NIC, HOST_DEVICE)}
