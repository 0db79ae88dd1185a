"""<hostdev>: a device of the host given to the VM."""

import re
from collections.abc import Container, Mapping

from saltvirt.core.errors import BadArgument
from saltvirt.xml import element, fields

# The address of a PCI device; that of a USB device is BUS:DEVICE.
_ADDRESS = re.compile(
    "(?P<domain>[0-9a-f]+):(?P<bus>[0-9a-f]+):(?P<slot>[0-9a-f]+)[.](?P<function>[0-7])"
)
# How libvirt names most PCI devices: by their address.
_NAME = re.compile(
    "pci_(?P<domain>[0-9a-f]+)_(?P<bus>[0-9a-f]+)_(?P<slot>[0-9a-f]+)_(?P<function>[0-7])"
)


@element.declare("hostdev")
class Hostdev:
    """The content of a <hostdev>: a PCI device's address, or a USB device's vendor and product."""

    mode: str | None = fields.attribute("@mode", default="subsystem")
    type: str | None = fields.attribute("@type")
    managed: bool | None = fields.attribute("@managed", fields.YES_NO, default=True)
    vendor: dict[str, str] | None = fields.bag("source/vendor", default=None)
    product: dict[str, str] | None = fields.bag("source/product", default=None)
    address: dict[str, str] | None = fields.bag("source/address", default=None)


build, read = element.build, element.reader(Hostdev)


def refuse_unknown(name: str, host_device_names: Container[str]) -> None:
    """
    Raise BadArgument for a name that no PCI or USB device of the host has.

    host_device_names
        The names of the host's PCI and USB devices.
    """
    if name in host_device_names:
        return
    if not name.startswith(("pci_", "usb_")):
        raise BadArgument(
            "host_devices",
            f"{name!r}: a VM can get only PCI and USB devices; virt.node_devices lists them",
        )
    raise BadArgument(
        "host_devices", f"{name!r} is not a device of this host; list them with virt.node_devices"
    )


def from_call(device: Mapping[str, str]) -> Hostdev:
    """
    Return the <hostdev> for a device as ``virt.node_devices`` describes it.

    The name of a PCI device is mostly, but not always, its address.

    device
        ``{"name": "pci_0000_03_00_0", "address": "0000:03:00.0"}`` for PCI, or a USB one with
        ``vendor_id`` and ``product_id``.
    """
    name = device["name"]
    match = _ADDRESS.fullmatch(device.get("address") or "") or _NAME.fullmatch(name)
    if match:
        address = {key: f"0x{value}" for key, value in match.groupdict().items()}
        return Hostdev(type="pci", address=address)
    if device.get("vendor_id") and device.get("product_id"):
        return Hostdev(
            type="usb",
            # libvirt detaches the kernel's driver in any case.
            managed=None,
            vendor={"id": device["vendor_id"]},
            product={"id": device["product_id"]},
        )
    raise BadArgument("host_devices", f"{name!r} is neither a PCI nor a USB device")
