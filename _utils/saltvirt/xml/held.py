"""The devices that a call can name in a domain: which one is which, and what they say."""

import copy
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

from saltvirt.xml import amend, disk, nic
from saltvirt.xml.disk import Disk
from saltvirt.xml.hostdev import Hostdev
from saltvirt.xml.nic import Interface

SEED_SERIAL = "saltvirt-seed"
DRIVES = ("cdrom", "floppy")
# What libvirt adds to a source while the domain runs.
_OF_RUN = ("index", "startupPolicy")
_ADDRESS = ("domain", "bus", "slot", "function")
# Of a NIC, what a call that does not say it leaves as it is.
_EXTRAS = ("mtu", "vlan", "virtualport", "bandwidth", "filter", "driver")


def is_seed(element: ET.Element) -> bool:
    """Return whether a disk is the seed of this project, which no call names."""
    return disk.read(element).serial == SEED_SERIAL


def kept_source(one: Disk) -> dict[str, str] | None:
    """Return a disk's source without what it has only while the domain runs."""
    said = {key: value for key, value in (one.source or {}).items() if key not in _OF_RUN}
    return said or None


def content(one: Disk) -> dict[str, str]:
    """Return where a disk's content is, as attributes."""
    servers = {f"host {n}": str(sorted(host.items())) for n, host in enumerate(one.hosts)}
    return {**(kept_source(one) or {}), **servers}


def with_medium(now: Disk, wanted: Disk) -> Disk:
    """Return a drive with the medium of another, and else as it is."""
    kind = wanted.type if wanted.source else "file"
    return replace(now, type=kind, source=wanted.source, hosts=wanted.hosts, auth=wanted.auth)


def amended_disk(element: ET.Element, wanted: Disk) -> ET.Element:
    """Return a copy of a <disk> that says what is wanted."""
    out = copy.deepcopy(element)
    now = disk.read(out)
    if amend.element(out, disk.build(now), disk.build(wanted)):
        if now.target.get("bus") != wanted.target.get("bus"):
            # It is on another bus, where that address means nothing.
            amend.put(out, "address", [])
        if content(now) != content(wanted):
            amend.put(out, "backingStore", [])
    return out


def amended_nic(element: ET.Element, wanted: Interface) -> ET.Element:
    """Return a copy of an <interface> that says what is wanted."""
    out = copy.deepcopy(element)
    now = nic.read(out)
    if amend.element(out, nic.build(now), nic.build(wanted)) and now.model != wanted.model:
        amend.put(out, "address", [])
    return out


def _kind(one: Interface) -> str | None:
    # What runs on a network is shown as what libvirt made of it.
    return "network" if "network" in (one.source or {}) else one.type


def place(one: Interface) -> tuple[Any, ...]:
    """Return what a NIC is on: its kind, and a bridge, network, link or device of the host."""
    kind = _kind(one)
    on = (one.source or {}).get("network") if kind == "network" else one.on
    return kind, on, number(one.address)


def number(address: dict[str, str] | None) -> tuple[int, ...] | None:
    """Return a PCI address as numbers, None without one."""
    try:
        return address and tuple(int(address.get(key, "0"), 16) for key in _ADDRESS)  # type: ignore[return-value]
    except ValueError:
        return None


def changed_nic(now: Interface, wanted: Interface) -> Interface:
    """Return a NIC as a call wants it; what the call does not say stays."""
    out = replace(now, **_extras(now, wanted), mac=wanted.mac)
    if place(now) != place(wanted):
        return replace(
            out,
            type=wanted.type,
            managed=wanted.managed,
            source=wanted.source,
            address=wanted.address,
            model=wanted.model,
        )
    return replace(out, model=wanted.model, source=_source(now, wanted))


def _source(now: Interface, wanted: Interface) -> dict[str, str] | None:
    """Return the source of a NIC that stays where it is, with what the call says of it."""
    said = wanted.source or {}
    given = {key: value for key, value in said.items() if key in ("portgroup", "mode")}
    return given or None if now.source is None else {**now.source, **given}


def differs(now: Interface, wanted: Interface) -> bool:
    """Return whether a NIC that stays where it is has other limits, tags or filters."""
    return any(getattr(now, key) != one for key, one in _extras(now, wanted).items())


def _extras(now: Interface, wanted: Interface) -> dict[str, Any]:
    """Return what a call says of a NIC beside its place, with what it leaves of each part."""
    given = {key: getattr(wanted, key) for key in _EXTRAS if getattr(wanted, key) is not None}
    if wanted.driver is not None:
        given["driver"] = {**(now.driver or {}), **wanted.driver}
    has, wants = now.virtualport, wanted.virtualport
    if has is not None and wants is not None and has.type == wants.type:
        # libvirt has given the port an id, by which the switch knows it.
        said = {**(has.parameters or {}), **(wants.parameters or {})}
        given["virtualport"] = replace(wants, parameters=said or None)
    return given


def host_device(one: Hostdev) -> tuple[Any, ...] | None:
    """Return what a device of the host is known by; None if calls cannot name such a device."""
    if one.type == "pci" and one.address:
        return ("pci", *(number(one.address) or ()))
    if one.type == "usb" and one.vendor and one.product:
        return ("usb", one.vendor.get("id", "").lower(), one.product.get("id", "").lower())
    return None
