"""<hostdev>: a device of the host given to the VM."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass

from saltvirt.errors import BadArgument
from saltvirt.xml import attributes_of, bag, switch, tag, yes_no


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostdev:
    """What a <hostdev> says: of a PCI device its address, of a USB one whose it is."""

    type: str | None
    mode: str | None = "subsystem"
    managed: bool | None = True
    address: dict[str, str] | None = None
    vendor: dict[str, str] | None = None
    product: dict[str, str] | None = None


def of(device: Mapping[str, str]) -> Hostdev:
    """
    Return it from a device as ``virt.node_devices`` describes it.

    device
        ``{"name": "pci_0000_03_00_0", "address": "0000:03:00.0"}`` for PCI, or a USB one with
        ``vendor_id`` and ``product_id``.
    """
    name = device["name"]
    if name.startswith("pci_"):
        parts = zip(
            ("domain", "bus", "slot", "function"),
            name.removeprefix("pci_").split("_"),
            strict=True,
        )
        return Hostdev(type="pci", address={part: f"0x{number}" for part, number in parts})
    if device.get("vendor_id") and device.get("product_id"):
        return Hostdev(
            type="usb",
            # The kernel's driver lets go of it anyway.
            managed=None,
            vendor={"id": device["vendor_id"]},
            product={"id": device["product_id"]},
        )
    raise BadArgument("host_devices", f"{name!r} is neither a PCI nor a USB device")


def build(device: Hostdev) -> ET.Element:
    """Return the <hostdev>."""
    attributes = {"mode": device.mode, "type": device.type, "managed": yes_no(device.managed)}
    return tag(
        "hostdev",
        attributes,
        tag(
            "source",
            None,
            bag("vendor", device.vendor),
            bag("product", device.product),
            bag("address", device.address),
        ),
    )


def read(element: ET.Element) -> Hostdev:
    """Return what a <hostdev> says."""
    return Hostdev(
        type=element.get("type"),
        mode=element.get("mode"),
        managed=switch(element.get("managed")),
        address=attributes_of(element.find("source/address")),
        vendor=attributes_of(element.find("source/vendor")),
        product=attributes_of(element.find("source/product")),
    )
