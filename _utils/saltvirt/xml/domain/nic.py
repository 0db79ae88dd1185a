"""<interface>."""

import xml.etree.ElementTree as ET
from typing import Any

from saltvirt.core.model import Nic
from saltvirt.core.nics import pci
from saltvirt.xml import element, fields, texts

# Shown also without attributes.
_ALWAYS = ("driver", "source", "address")
# The attribute of <source> for the host's side of a NIC; libvirt keeps none for `ethernet`.
_SOURCE = {
    "bridge": "bridge",
    "network": "network",
    "direct": "dev",
    "vdpa": "dev",
}
# A <source> that has only the address of a device.
_SOME_ATTRIBUTES = fields.Form(lambda source: dict(source.attrib) or None, fields.ATTRIBUTES.dump)


@element.declare("vlan")
class Vlan:
    """VLAN tags, each with its ``nativeMode``."""

    is_trunk: bool = fields.attribute("@trunk", fields.YES, missing=False, default=False)
    tags: tuple[tuple[str, str | None], ...] = fields.values(
        "tag", fields.tuple_of("id", "nativeMode"), default=()
    )


@element.declare("virtualport")
class Port:
    """The settings of a port of a virtual switch."""

    type: str | None = fields.attribute("@type")
    parameters: dict[str, str] | None = fields.bag("parameters", default=None)


@element.declare("filterref")
class Filter:
    """A filter of the host and its parameters."""

    name: str | None = fields.attribute("@filter")
    parameters: tuple[tuple[str | None, str | None], ...] = fields.values(
        "parameter", fields.tuple_of("name", "value"), default=()
    )


@element.declare("interface")
class Interface:
    """The content of an <interface>; ``source``, ``address``, ``driver`` are attributes."""

    type: str | None = fields.attribute("@type", default="bridge")
    managed: bool | None = fields.attribute("@managed", fields.YES_NO, default=None)
    source: dict[str, str] | None = fields.value("source", _SOME_ATTRIBUTES, default=None)
    address: dict[str, str] | None = fields.bag("source/address", default=None)
    mac: str | None = fields.attribute("mac/@address", default=None)
    mtu: str | None = fields.attribute("mtu/@size", default=None)
    vlan: Vlan | None = fields.child(default=None)
    virtualport: Port | None = fields.child(default=None)
    bandwidth: dict[str, dict[str, str]] | None = fields.tagged(
        "bandwidth", "inbound", "outbound", default=None
    )
    filter: Filter | None = fields.child(default=None)
    model: str | None = fields.attribute("model/@type", default=None)
    driver: dict[str, str] | None = fields.bag("driver", default=None)

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


build, read = element.build, element.reader(Interface)


def describe(element: ET.Element) -> dict[str, Any]:
    """
    Return ``{type, mac, source, model, target, ...}``, with all other children with attributes.

    A source without attributes, as of a NIC of type ``hostdev``, is ``{}``, as on Salt 3006.
    """
    out: dict[str, Any] = {"type": element.get("type")}
    short = {"mac": "address", "model": "type", "target": "dev"}
    for part in element:
        if part.tag in short:
            out[part.tag] = part.get(short[part.tag])
        elif part.attrib or part.tag in _ALWAYS:
            out[part.tag] = dict(part.attrib)
    return out
