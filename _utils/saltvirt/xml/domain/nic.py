"""<interface>."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import Any

from saltvirt.core.model import Nic
from saltvirt.core.nics import pci
from saltvirt.xml import attributes_of, bag, switch, tag, texts, yes_no

# Shown also without attributes.
_ALWAYS = ("driver", "source", "address")
# The attribute of <source> for the host's side of a NIC; libvirt keeps none for `ethernet`.
_SOURCE = {
    "bridge": "bridge",
    "network": "network",
    "direct": "dev",
    "vdpa": "dev",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Vlan:
    """VLAN tags, each with its ``nativeMode``."""

    is_trunk: bool = False
    tags: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """The settings of a port of a virtual switch."""

    type: str | None
    parameters: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A filter of the host and its parameters."""

    name: str | None
    parameters: tuple[tuple[str | None, str | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """The content of an <interface>; ``source``, ``address``, ``driver`` are attributes."""

    type: str | None = "bridge"
    managed: bool | None = None
    source: dict[str, str] | None = None
    address: dict[str, str] | None = None
    mac: str | None = None
    mtu: str | None = None
    vlan: Vlan | None = None
    virtualport: Port | None = None
    bandwidth: dict[str, dict[str, str]] | None = None
    filter: Filter | None = None
    model: str | None = None
    driver: dict[str, str] | None = None

    @property
    def on(self) -> str | None:
        """The bridge, network or link of the host that it is attached to."""
        return (self.source or {}).get(_SOURCE.get(self.type or "", "dev"))

    @property
    def is_tagged(self) -> bool:
        """Whether it has VLAN tags."""
        return self.vlan is not None

    @property
    def is_switched(self) -> bool:
        """Whether it is a port of Open vSwitch."""
        return self.virtualport is not None and self.virtualport.type == "openvswitch"


def from_call(nic: Nic) -> Interface:
    """Return the interface for a NIC."""
    extra, kind = nic.extra, nic.type
    address = pci(nic.source) if kind == "hostdev" else None
    if kind == "hostdev" and not address:
        # The source is a network with a pool of devices.
        kind = "network"
    return Interface(
        type=kind,
        managed=True if address else None,
        source=_source(kind, nic),
        address=address,
        mac=nic.mac,
        mtu=str(extra["mtu"]) if "mtu" in extra else None,
        vlan=_vlan(extra.get("vlan")),
        virtualport=_port(extra.get("virtualport")),
        bandwidth=_limits(extra.get("bandwidth")),
        filter=_filter(extra.get("filter")),
        model=None if address else nic.model,
        driver={"queues": str(extra["queues"])} if "queues" in extra else None,
    )


def _source(kind: str, nic: Nic) -> dict[str, str] | None:
    if kind not in _SOURCE or not nic.source:
        return None
    mode = nic.extra.get("mode", "bridge") if kind == "direct" else None
    portgroup = nic.extra.get("portgroup")
    return texts({_SOURCE[kind]: nic.source, "portgroup": portgroup, "mode": mode})


def _vlan(vlan: dict[str, Any] | None) -> Vlan | None:
    if vlan is None:
        return None
    native = vlan["native"]
    tags = tuple((str(number), "untagged" if number == native else None) for number in vlan["tags"])
    return Vlan(is_trunk=vlan["trunk"], tags=tags)


def _port(port: dict[str, Any] | None) -> Port | None:
    if port is None:
        return None
    return Port(type=port["type"], parameters=texts(port["parameters"]) or None)


def _limits(limits: dict[str, Any] | None) -> dict[str, dict[str, str]] | None:
    return limits and {side: texts(values) for side, values in limits.items()}


def _filter(filter_: dict[str, Any] | None) -> Filter | None:
    if filter_ is None:
        return None
    return Filter(name=filter_["name"], parameters=tuple(filter_["parameters"]))


def build(interface: Interface) -> ET.Element:
    """Return the <interface>."""
    return tag(
        "interface",
        {"type": interface.type, "managed": yes_no(interface.managed)},
        _build_source(interface),
        tag("mac", {"address": interface.mac}) if interface.mac is not None else None,
        tag("mtu", {"size": interface.mtu}) if interface.mtu is not None else None,
        build_vlan(interface.vlan),
        build_port(interface.virtualport),
        _build_limits(interface.bandwidth),
        _build_filter(interface.filter),
        tag("model", {"type": interface.model}) if interface.model is not None else None,
        bag("driver", interface.driver),
    )


def _build_source(interface: Interface) -> ET.Element | None:
    if interface.source is None and interface.address is None:
        return None
    return tag("source", interface.source, bag("address", interface.address))


def build_vlan(vlan: Vlan | None) -> ET.Element | None:
    if vlan is None:
        return None
    tags = [tag("tag", {"id": number, "nativeMode": mode}) for number, mode in vlan.tags]
    return tag("vlan", {"trunk": "yes"} if vlan.is_trunk else None, *tags)


def build_port(port: Port | None) -> ET.Element | None:
    if port is None:
        return None
    return tag("virtualport", {"type": port.type}, bag("parameters", port.parameters))


def _build_limits(limits: dict[str, dict[str, str]] | None) -> ET.Element | None:
    if limits is None:
        return None
    return tag("bandwidth", None, *[tag(side, values) for side, values in limits.items()])


def _build_filter(filter_: Filter | None) -> ET.Element | None:
    if filter_ is None:
        return None
    rows = [tag("parameter", {"name": name, "value": value}) for name, value in filter_.parameters]
    return tag("filterref", {"filter": filter_.name}, *rows)


def read(element: ET.Element) -> Interface:
    """Return the content of an <interface>."""
    source = element.find("source")
    return Interface(
        type=element.get("type"),
        managed=switch(element.get("managed")),
        source=attributes_of(source) or None,
        address=attributes_of(element.find("source/address")),
        mac=_attribute(element, "mac", "address"),
        mtu=_attribute(element, "mtu", "size"),
        vlan=read_vlan(element.find("vlan")),
        virtualport=read_port(element.find("virtualport")),
        bandwidth=_read_limits(element.find("bandwidth")),
        filter=_read_filter(element.find("filterref")),
        model=_attribute(element, "model", "type"),
        driver=attributes_of(element.find("driver")),
    )


def _attribute(element: ET.Element, name: str, key: str) -> str | None:
    child = element.find(name)
    return None if child is None else child.get(key)


def read_vlan(element: ET.Element | None) -> Vlan | None:
    if element is None:
        return None
    tags = tuple(
        (child.get("id", ""), child.get("nativeMode")) for child in element.iterfind("tag")
    )
    return Vlan(is_trunk=switch(element.get("trunk")) is True, tags=tags)


def read_port(element: ET.Element | None) -> Port | None:
    if element is None:
        return None
    return Port(type=element.get("type"), parameters=attributes_of(element.find("parameters")))


def _read_limits(element: ET.Element | None) -> dict[str, dict[str, str]] | None:
    return None if element is None else {side.tag: dict(side.attrib) for side in element}


def _read_filter(element: ET.Element | None) -> Filter | None:
    if element is None:
        return None
    rows = tuple(
        (parameter.get("name"), parameter.get("value"))
        for parameter in element.iterfind("parameter")
    )
    return Filter(name=element.get("filter"), parameters=rows)


def describe(element: ET.Element) -> dict[str, Any]:
    """
    Return ``{type, mac, source, model, target, ...}``, with all other children with attributes.

    A source without attributes, as of a NIC of type ``hostdev``, is ``{}``, as on Salt 3006.
    """
    out: dict[str, Any] = {"type": element.get("type")}
    short = {"mac": "address", "model": "type", "target": "dev"}
    for child in element:
        if child.tag in short:
            out[child.tag] = child.get(short[child.tag])
        elif child.attrib or child.tag in _ALWAYS:
            out[child.tag] = dict(child.attrib)
    return out
