"""<device>: a device of a host, as libvirt lists it."""

import xml.etree.ElementTree as ET
from typing import Any

from saltvirt.xml import parse, tag

# The USB hosts of Linux itself, which no VM gets.
_USB_HOSTS = [("0x1d6b", f"0x000{number}") for number in (1, 2, 3)]
# Further capabilities of a PCI device that libvirt lists.
_LISTED = ("mdev_types", "vpd")
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


def describe(text: str) -> dict[str, Any] | None:
    """
    Return a device as ``virt.node_devices`` shows it; None if it is of no use to a VM.

    Of no use are bridges of PCI, USB hosts of Linux, and links without a device.
    """
    root = parse(text)
    capabilities = {element.get("type", ""): element for element in root.iterfind("capability")}
    caps = {"caps": " ".join([*capabilities, *_extra_capabilities(capabilities)])}
    if "net" in capabilities:
        return _describe_link(root, capabilities["net"], caps)
    kind = next((name for name in ("pci", "usb_device") if name in capabilities), None)
    if kind is None:
        return None
    capability = capabilities[kind]
    out = {"name": root.findtext("name", ""), **caps, **_describe_maker(capability)}
    is_host = (out["vendor_id"], out["product_id"]) in _USB_HOSTS
    if is_host or capability.find("capability[@type='pci-bridge']") is not None:
        return None
    return {**out, **(_describe_pci(capability) if kind == "pci" else _describe_usb(capability))}


def _extra_capabilities(capabilities: dict[str, ET.Element]) -> list[str]:
    pci = capabilities.get("pci")
    children = [] if pci is None else pci.findall("capability")
    return [name for name in _LISTED if any(child.get("type") == name for child in children)]


def _describe_link(
    root: ET.Element, link: ET.Element, caps: dict[str, Any]
) -> dict[str, Any] | None:
    parent, state = root.findtext("parent"), link.find("link")
    if parent in (None, "computer"):
        return None
    return {
        **caps,
        "name": link.findtext("interface"),
        "address": link.findtext("address"),
        "device name": parent,
        "state": None if state is None else state.get("state"),
    }


def _describe_maker(capability: ET.Element) -> dict[str, str]:
    out = {}
    for key in ("vendor", "product"):
        element = capability.find(key)
        out[f"{key}_id"] = "" if element is None else element.get("id", "").lower()
        if element is not None and element.text:
            out[key] = element.text
    return out


def _describe_usb(usb: ET.Element) -> dict[str, Any]:
    bus, device = (int(usb.findtext(part, "0")) for part in ("bus", "device"))
    return {"address": f"{bus:03}:{device:03}"}


def _describe_pci(pci: ET.Element) -> dict[str, Any]:
    out: dict[str, Any] = {"address": _pci_address(pci)}
    if pci.find("class") is not None:
        out["PCI class"] = pci.findtext("class")
    virtual = [
        _device_name(address)
        for address in pci.iterfind("capability[@type='virt_functions']/address")
    ]
    physical = pci.find("capability[@type='phys_function']/address")
    if virtual:
        out["virtual functions"] = virtual
    return out if physical is None else {**out, "physical function": _device_name(physical)}


def _device_name(address: ET.Element) -> str:
    domain, bus, slot, function = (int(address.get(part, "0"), 0) for part in _PCI_PARTS)
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"
