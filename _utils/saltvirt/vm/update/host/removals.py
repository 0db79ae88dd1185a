"""Refuse calls that would remove devices because their lists do not name them."""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Sequence

from saltvirt.core.errors import BadArgument
from saltvirt.vm.update.host import live
from saltvirt.vm.update.host.plan import Plan
from saltvirt.vm.update.host.request import Request
from saltvirt.xml.domain import chardev, disk, graphics, hostdev, nic
from saltvirt.xml.edit import amend, devicematch

_FindLost = Callable[[ET.Element, ET.Element], Iterator[str]]
# Remedies: how a call keeps a device.
_KEEP_ADVICE = {
    "disks": "list all disks that are to stay",
    "interfaces": "list all NICs that are to stay, with their mac",
}


def refuse(definition: ET.Element, plan: Plan, changes: live.Live, request: Request) -> None:
    """
    Raise BadArgument if a call would remove devices that it does not name.

    ``detach`` of the call allows it, and so does ``virt:compat: 3006``. A call for no display
    needs neither.

    changes
        The changes to the running VM.
    """
    if request.detach or request.is_3006:
        return
    for argument, find in _LISTS.items():
        if getattr(request, argument) is None:
            continue
        lost_devices = [
            *find(definition, plan.root),
            *_find_unplugged(argument, plan.root, changes),
        ]
        if lost_devices:
            # The definition and the running VM mostly list the same devices.
            names = ", ".join(dict.fromkeys(lost_devices))
            raise BadArgument(
                argument,
                f"VM {request.name!r} would lose {names}, which the call does not name; "
                f"{_KEEP_ADVICE.get(argument, 'list all that is to stay')}, or give detach=True",
            )


def _find_unplugged(argument: str, root: ET.Element, changes: live.Live) -> Iterator[str]:
    """Yield detached devices of the running VM that the new definition lacks."""
    rows = _DEVICE_TYPES.get(argument)
    if rows is None:
        return
    device, identify, describe = rows
    kept_keys = [identify(element) for element in amend.devices(root, device)]
    for step in changes.steps:
        is_lost = step.how == live.DETACH and step.device == device
        if is_lost and identify(step.element) not in kept_keys:
            yield describe(step.element)


def _disk_key(element: ET.Element) -> object:
    return devicematch.content(disk.read(element))


def _describe_disk(element: ET.Element) -> str:
    vm_disk = disk.read(element)
    path_text = f" ({vm_disk.path})" if vm_disk.path else ""
    return f"{vm_disk.device or 'disk'} {vm_disk.target.get('dev')}{path_text}"


def _nic_key(element: ET.Element) -> object:
    return (nic.read(element).mac or "").lower()


def _describe_nic(element: ET.Element) -> str:
    interface = nic.read(element)
    return (
        f"NIC {interface.mac} ({interface.type} {devicematch.place(interface)[1] or ''}".rstrip()
        + ")"
    )


def _host_device_key(element: ET.Element) -> object:
    return devicematch.host_device_key(hostdev.read(element))


def _describe_host_device(element: ET.Element) -> str:
    host_device = hostdev.read(element)
    if host_device.type == "usb":
        maker, product = host_device.vendor or {}, host_device.product or {}
        return f"USB device {maker.get('id')}:{product.get('id')}"
    numbers = devicematch.parse_pci_address(host_device.address) or (0, 0, 0, 0)
    return "PCI device {:04x}:{:02x}:{:02x}.{:x}".format(*numbers)


def _disks(old_root: ET.Element, new_root: ET.Element) -> Iterator[str]:
    """Yield the removed disks; of drives only the surplus."""
    contents = [_disk_key(disk_element) for disk_element in _disks_without_seed(new_root)]
    targets = {
        disk.read(disk_element).target.get("dev") for disk_element in _disks_without_seed(new_root)
    }
    for element in _disks_without_seed(old_root):
        vm_disk = disk.read(element)
        if vm_disk.device not in devicematch.DRIVES and _disk_key(element) not in contents:
            yield _describe_disk(element)
    for kind in devicematch.DRIVES:
        drives = [
            disk_element
            for disk_element in _disks_without_seed(old_root)
            if disk.read(disk_element).device == kind
        ]
        surplus_count = len(drives) - sum(
            disk.read(disk_element).device == kind for disk_element in _disks_without_seed(new_root)
        )
        gone_drives = [
            disk_element
            for disk_element in drives
            if disk.read(disk_element).target.get("dev") not in targets
        ]
        yield from map(_describe_disk, gone_drives[: max(surplus_count, 0)])


def _disks_without_seed(root: ET.Element) -> list[ET.Element]:
    return [element for element in amend.devices(root, "disk") if not devicematch.is_seed(element)]


def _interfaces(old_root: ET.Element, new_root: ET.Element) -> Iterator[str]:
    kept_macs = [_nic_key(element) for element in amend.devices(new_root, "interface")]
    return (
        _describe_nic(element)
        for element in amend.devices(old_root, "interface")
        if _nic_key(element) not in kept_macs
    )


def _host_devices(old_root: ET.Element, new_root: ET.Element) -> Iterator[str]:
    kept_keys = [_host_device_key(element) for element in amend.devices(new_root, "hostdev")]
    return (
        _describe_host_device(element)
        for element in amend.devices(old_root, "hostdev")
        if _host_device_key(element) not in kept_keys
    )


def _serials(old_root: ET.Element, new_root: ET.Element) -> Iterator[str]:
    return _surplus("serial", amend.devices(old_root, "serial"), amend.devices(new_root, "serial"))


def _consoles(old_root: ET.Element, new_root: ET.Element) -> Iterator[str]:
    return _surplus("console", _unshadowed_consoles(old_root), _unshadowed_consoles(new_root))


def _unshadowed_consoles(root: ET.Element) -> list[ET.Element]:
    """Return the consoles that do not mirror the first serial port."""
    consoles = amend.devices(root, "console")
    return [console for console in consoles if not chardev.is_shadow(chardev.read(console))]


def _surplus(
    name: str, old_elements: Sequence[ET.Element], new_elements: Sequence[ET.Element]
) -> Iterator[str]:
    """Yield the devices beyond the end of a shorter new list."""
    for number, element in enumerate(old_elements):
        if number >= len(new_elements):
            yield f"{name} {number} ({element.get('type')})"


def _displays(old_root: ET.Element, new_root: ET.Element) -> Iterator[str]:
    """Yield the removed displays, except one that the call replaces."""
    new_kinds = [graphics.read(element).type for element in amend.devices(new_root, "graphics")]
    old_kinds = [
        str(graphics.read(element).type) for element in amend.devices(old_root, "graphics")
    ]
    other_kinds = [kind for kind in old_kinds if kind not in new_kinds]
    # A new type replaces one display; a call for no display removes all on purpose.
    is_replaced = bool(new_kinds) and len(other_kinds) == len(old_kinds)
    return _display_names(other_kinds[1:] if is_replaced else other_kinds if new_kinds else ())


def _display_names(kinds: Iterable[str]) -> Iterator[str]:
    return (f"display {kind}" for kind in kinds)


_LISTS: dict[str, _FindLost] = {
    "disks": _disks,
    "interfaces": _interfaces,
    "host_devices": _host_devices,
    "serials": _serials,
    "consoles": _consoles,
    "graphics": _displays,
}
_DEVICE_TYPES: dict[
    str, tuple[str, Callable[[ET.Element], object], Callable[[ET.Element], str]]
] = {
    "disks": ("disk", _disk_key, _describe_disk),
    "interfaces": ("interface", _nic_key, _describe_nic),
    "host_devices": ("hostdev", _host_device_key, _describe_host_device),
}
