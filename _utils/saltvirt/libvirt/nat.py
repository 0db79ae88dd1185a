"""Plan, define and start libvirt's network with NAT."""

import ipaddress
from collections.abc import Mapping
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument, LibvirtRefused
from saltvirt.libvirt import networks
from saltvirt.libvirt.connect import libvirt
from saltvirt.xml import to_text
from saltvirt.xml.network import network

# The subnet of libvirt's own default network.
SUBNET = "192.168.122.0/24"
_LEAST_ADDRESSES = 8


def build_xml(name: str, subnet: str) -> str:
    """Return the <network> as text; libvirt chooses the bridge's name."""
    network_name = arguments.object_name("network", name)
    try:
        net = ipaddress.IPv4Network(subnet)
    except ValueError as exc:
        raise BadArgument("subnet", f"{subnet!r} is not an IPv4 network: {exc}") from exc
    if not net.is_private or net.is_loopback or net.is_link_local or net.is_reserved:
        raise BadArgument("subnet", f"{subnet} is not a private network, such as 10.99.0.0/24")
    if net.num_addresses < _LEAST_ADDRESSES:
        raise BadArgument("subnet", f"{subnet} has no room for guests; give /29 or a larger one")
    ip = network.Ip(
        address=str(net[1]), prefix=net.prefixlen, ranges=((str(net[2]), str(net[-2])),)
    )
    return to_text(network.build(network.Network(name=network_name, forward="nat", ips=(ip,))))


def plan(conn: Any, name: str, subnet: str) -> dict[str, Any]:
    """Return the needed changes: ``{"defined" | "started" | "autostart": ...}``."""
    libvirt_network = networks.find(conn, name)
    if libvirt_network is None:
        return {"defined": subnet, "started": True, "autostart": True}
    out = {} if libvirt_network.isActive() else {"started": True}
    return out if libvirt_network.autostart() else {**out, "autostart": True}


def apply(conn: Any, name: str, xml: str, changes: Mapping[str, Any]) -> None:
    """Apply the changes of :func:`plan`; if a new network cannot start, undefine it."""
    libvirt_network = (
        conn.networkDefineXML(xml) if "defined" in changes else networks.find(conn, name)
    )
    try:
        if "started" in changes:
            libvirt_network.create()
    except libvirt.libvirtError as exc:
        if "defined" in changes:
            libvirt_network.undefine()
        raise LibvirtRefused(
            f"network {name!r} cannot be started: {exc}; if this host is in such a network itself, "
            f"give it another with virsh net-edit {name}, or set hypervisor:nat: False in pillar"
        ) from exc
    if "autostart" in changes:
        libvirt_network.setAutostart(1)
