"""The devices that a call can name in a domain: which element they are, and its content."""

import copy
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

from saltvirt.xml.domain import disk, nic
from saltvirt.xml.domain.disk import Disk
from saltvirt.xml.domain.hostdev import Hostdev
from saltvirt.xml.domain.nic import Interface
from saltvirt.xml.edit import amend

SEED_SERIAL = "saltvirt-seed"
DRIVES = ("cdrom", "floppy")
# Attributes that libvirt adds to a source while the domain runs.
_OF_RUN = ("index", "startupPolicy")
_ADDRESS = ("domain", "bus", "slot", "function")
# Parts of a NIC that a call may leave out: they stay.
_EXTRAS = ("mtu", "vlan", "virtualport", "bandwidth", "filter", "driver")


def is_seed(element: ET.Element) -> bool:
    """Return whether a disk is the seed of this project, which no call names."""
    return disk.read(element).serial == SEED_SERIAL


def persistent_source(vm_disk: Disk) -> dict[str, str] | None:
    """Return a disk's source without the attributes that it has only while the domain runs."""
    attributes = {key: value for key, value in (vm_disk.source or {}).items() if key not in _OF_RUN}
    return attributes or None


def content(vm_disk: Disk) -> dict[str, str]:
    """Return the place of a disk's content, as attributes."""
    servers = {f"host {n}": str(sorted(host.items())) for n, host in enumerate(vm_disk.hosts)}
    return {**(persistent_source(vm_disk) or {}), **servers}


def with_medium(current: Disk, requested: Disk) -> Disk:
    """Return a drive with the medium of another, otherwise unchanged."""
    kind = requested.type if requested.source else "file"
    return replace(
        current, type=kind, source=requested.source, hosts=requested.hosts, auth=requested.auth
    )


def amend_disk_copy(element: ET.Element, requested: Disk) -> ET.Element:
    """Return a copy of a <disk> with the requested values."""
    out = copy.deepcopy(element)
    current = disk.read(out)
    if amend.change_element(out, disk.build(current), disk.build(requested)):
        if current.target.get("bus") != requested.target.get("bus"):
            # The address means nothing on another bus.
            amend.remove_children(out, "address")
        if content(current) != content(requested):
            amend.remove_children(out, "backingStore")
    return out


def amend_nic_copy(element: ET.Element, requested: Interface) -> ET.Element:
    """Return a copy of an <interface> with the requested values."""
    out = copy.deepcopy(element)
    current = nic.read(out)
    if (
        amend.change_element(out, nic.build(current), nic.build(requested))
        and current.model != requested.model
    ):
        amend.remove_children(out, "address")
    return out


def _kind(interface: Interface) -> str | None:
    # libvirt shows a running NIC of a network with another type, and keeps the network's name.
    return "network" if "network" in (interface.source or {}) else interface.type


def place(interface: Interface) -> tuple[Any, ...]:
    """Return the host's side of a NIC: its kind, and a bridge, network, link or device."""
    kind = _kind(interface)
    on = (interface.source or {}).get("network") if kind == "network" else interface.on
    return kind, on, parse_pci_address(interface.address)


def parse_pci_address(address: dict[str, str] | None) -> tuple[int, ...] | None:
    """Return a PCI address as numbers, None without one."""
    try:
        return address and tuple(int(address.get(key, "0"), 16) for key in _ADDRESS)  # type: ignore[return-value]
    except ValueError:
        return None


def merge_nic(current: Interface, requested: Interface) -> Interface:
    """Return a NIC with the requested values; what the call leaves out stays."""
    out = replace(current, **_extras(current, requested), mac=requested.mac)
    if place(current) != place(requested):
        return replace(
            out,
            type=requested.type,
            managed=requested.managed,
            source=requested.source,
            address=requested.address,
            model=requested.model,
        )
    return replace(out, model=requested.model, source=_source(current, requested))


def _source(current: Interface, requested: Interface) -> dict[str, str] | None:
    """Return the source of a NIC that stays in its place, with the call's values."""
    requested_source = requested.source or {}
    overrides = {
        key: value for key, value in requested_source.items() if key in ("portgroup", "mode")
    }
    return overrides or None if current.source is None else {**current.source, **overrides}


def differs(current: Interface, requested: Interface) -> bool:
    """Return whether a NIC that stays in its place gets other limits, tags or filters."""
    return any(getattr(current, key) != value for key, value in _extras(current, requested).items())


def _extras(current: Interface, requested: Interface) -> dict[str, Any]:
    """Return a call's values of a NIC other than its place, completed from the current ones."""
    extras = {
        key: getattr(requested, key) for key in _EXTRAS if getattr(requested, key) is not None
    }
    if requested.driver is not None:
        extras["driver"] = {**(current.driver or {}), **requested.driver}
    current_port, requested_port = current.virtualport, requested.virtualport
    if (
        current_port is not None
        and requested_port is not None
        and current_port.type == requested_port.type
    ):
        # libvirt has given the port an id, which the switch knows.
        parameters = {**(current_port.parameters or {}), **(requested_port.parameters or {})}
        extras["virtualport"] = replace(requested_port, parameters=parameters or None)
    return extras


def host_device_key(device: Hostdev) -> tuple[Any, ...] | None:
    """Return the identity of a host device; None if calls cannot name such a device."""
    if device.type == "pci" and device.address:
        return ("pci", *(parse_pci_address(device.address) or ()))
    if device.type == "usb" and device.vendor and device.product:
        return ("usb", device.vendor.get("id", "").lower(), device.product.get("id", "").lower())
    return None
