"""<hostdev>: a device of the host given to the VM."""

from saltvirt.errors import BadArgument
from saltvirt.xml import tag


def element(device):
    """
    Return <hostdev> of a device as ``virt.node_devices`` describes it.

    device
        ``{"name": "pci_0000_03_00_0", "address": "0000:03:00.0"}`` for PCI, or a USB one with
        ``vendor_id`` and ``product_id``.
    """
    name = device["name"]
    if name.startswith("pci_"):
        domain, bus, slot, function = name.removeprefix("pci_").split("_")
        address = {"domain": f"0x{domain}", "bus": f"0x{bus}", "slot": f"0x{slot}",
                   "function": f"0x{function}"}  # fmt: skip
        source = tag("source", None, tag("address", address))
        return tag("hostdev", {"mode": "subsystem", "type": "pci", "managed": "yes"}, source)
    if device.get("vendor_id") and device.get("product_id"):
        source = tag(
            "source",
            None,
            tag("vendor", {"id": device["vendor_id"]}),
            tag("product", {"id": device["product_id"]}),
        )
        return tag("hostdev", {"mode": "subsystem", "type": "usb", "managed": "yes"}, source)
    raise BadArgument("host_devices", f"{name!r} is neither a PCI nor a USB device")
