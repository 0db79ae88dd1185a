"""<device>: a device of a host, as libvirt lists it."""

import xml.etree.ElementTree as ET
from typing import Any

from saltvirt.xml import parse, tag

_PCI_PARTS = ("domain", "bus", "slot", "function")


def read(text: str) -> dict[str, Any]:
    """Return ``{name, caps, vendor_id, product_id, vendor, product, address, "PCI class"}``."""
    root = parse(text)
    capability = root.find("capability")
    if capability is None:
        capability = tag("capability")
    out = {"name": root.findtext("name", ""), "caps": capability.get("type")}
    for key in ("vendor", "product"):
        element = capability.find(key)
        if element is not None:
            out[f"{key}_id"], out[key] = element.get("id"), element.text or ""
    if out["caps"] == "pci":
        out["address"] = _pci_address(capability)
        out["PCI class"] = capability.findtext("class", "")
    elif out["caps"] == "usb_device":
        out["address"] = f"{capability.findtext('bus')}:{capability.findtext('device')}"
    return out


def _pci_address(capability: ET.Element) -> str:
    domain, bus, slot, function = (int(capability.findtext(p, "0"), 0) for p in _PCI_PARTS)
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"
