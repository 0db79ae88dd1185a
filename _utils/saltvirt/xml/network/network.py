"""<network>: a network of libvirt."""

import ipaddress
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

from saltvirt.xml import element, fields, switch, tag
from saltvirt.xml.domain import nic

# The modes for which libvirt names a bridge itself, if the definition has none.
GENERATED = (None, "nat", "route", "open")
# The ports that libvirt writes for NAT without ports.
_ALL_PORTS = ("1024", "65535")
_PCI_PARTS = ("domain", "bus", "slot", "function")
_DECLARED = {
    *("name", "uuid", "mac", "bridge", "mtu", "domain", "forward"),
    *("virtualport", "vlan", "dns", "ip"),
}

Rows = tuple[tuple[tuple[str, str], ...], ...]


def _write_forward(forward: ET.Element, mode: str) -> None:
    managed = True if mode == "hostdev" else None
    fields.ATTRIBUTES.dump(forward, {"mode": mode, "managed": managed})


def _read_pci_address(address: ET.Element) -> str:
    domain, bus, slot, function = (int(address.get(part, "0"), 16) for part in _PCI_PARTS)
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _write_pci_address(element: ET.Element, address: str) -> None:
    numbers = zip(_PCI_PARTS, re.split("[:.]", address), strict=True)
    element.attrib.update({"type": "pci", **{part: f"0x{number}" for part, number in numbers}})


def _write_domain(element: ET.Element, domain: tuple[str, bool | None]) -> None:
    fields.ATTRIBUTES.dump(element, {"name": domain[0], "localOnly": domain[1]})


def _read_host_names(host: ET.Element) -> tuple[str, tuple[str, ...]]:
    return host.get("ip", ""), tuple(name.text or "" for name in host.iterfind("hostname"))


def _write_host_names(host: ET.Element, content: tuple[str, tuple[str, ...]]) -> None:
    fields.ATTRIBUTES.dump(host, {"ip": content[0]})
    host.extend(tag("hostname", text=name) for name in content[1])


def _write_address(ip: ET.Element, address: str) -> None:
    ip.attrib.update({"family": _family(address), "address": address})


def _read_prefix(ip: ET.Element) -> int:
    length = ip.get("prefix") or ip.get("netmask")
    # Without either, libvirt goes by the class of the address.
    network = f"{ip.get('address', '')}/{length}"
    return ipaddress.ip_network(network, strict=False).prefixlen if length else 0


def _family(address: str) -> str:
    return "ipv6" if ":" in address else "ipv4"


_FORWARD = fields.Form(lambda forward: forward.get("mode", "nat"), _write_forward)
_SPAN = fields.tuple_of("start", "end")
_PCI_ADDRESS = fields.Form(_read_pci_address, _write_pci_address)
_DOMAIN = fields.Form(
    lambda domain: (domain.get("name", ""), switch(domain.get("localOnly"))), _write_domain
)
# Attributes as a tuple, which can be sorted.
_ROW = fields.Form(
    lambda row: tuple(sorted(row.attrib.items())),
    lambda row, pairs: fields.ATTRIBUTES.dump(row, dict(pairs)),
)
_HOST_NAMES = fields.Form(_read_host_names, _write_host_names)
_ADDRESS = fields.Form(lambda ip: ip.get("address", ""), _write_address)
_PREFIX = fields.Form(_read_prefix, lambda ip, prefix: ip.set("prefix", str(prefix)))
_OTHERS = fields.Form(
    lambda network: tuple(sorted({child.tag for child in network} - _DECLARED)),
    lambda network, names: None,
)


@element.declare("dns")
class Dns:
    """The content of a <dns>: rows of attributes; ``hosts`` are (address, names)."""

    forwarders: Rows = fields.values("forwarder", _ROW, default=())
    txt: Rows = fields.values("txt", _ROW, default=())
    hosts: tuple[tuple[str, tuple[str, ...]], ...] = fields.values("host", _HOST_NAMES, default=())
    srvs: Rows = fields.values("srv", _ROW, default=())


@element.declare("ip")
class Ip:
    """The host's own address in the network, and what DHCP and TFTP serve there."""

    address: str = fields.value(".", _ADDRESS)
    prefix: int = fields.value(".", _PREFIX)
    tftp: str | None = fields.attribute("tftp/@root", default=None)
    ranges: tuple[tuple[str, str], ...] = fields.values("dhcp/range", _SPAN, default=())
    hosts: Rows = fields.values("dhcp/host", _ROW, default=())
    bootp: tuple[tuple[str, str], ...] | None = fields.value("dhcp/bootp", _ROW, default=None)

    @property
    def family(self) -> str:
        """``ipv4`` or ``ipv6``."""
        return _family(self.address)


@element.declare("network")
class Network:
    """The content of a <network>; ``others`` are the names of elements without a field here."""

    name: str = fields.text("name", missing="")
    uuid: str | None = fields.text("uuid", default=None)
    forward: str | None = fields.value("forward", _FORWARD, default=None)
    nat_addresses: tuple[str, str] | None = fields.value("forward/nat/address", _SPAN, default=None)
    nat_ports: tuple[str, str] | None = fields.value("forward/nat/port", _SPAN, default=None)
    interfaces: tuple[str, ...] = fields.values(
        "forward/interface", fields.in_attribute("dev"), default=()
    )
    addresses: tuple[str, ...] = fields.values("forward/address", _PCI_ADDRESS, default=())
    physical_function: str | None = fields.attribute("forward/pf/@dev", default=None)
    bridge: str | None = fields.attribute("bridge/@name", default=None)
    mtu: int | None = fields.attribute("mtu/@size", fields.INTEGER, default=None)
    mac: str | None = fields.attribute("mac/@address", default=None)
    domain: tuple[str, bool | None] | None = fields.value("domain", _DOMAIN, default=None)
    dns: Dns | None = fields.child(default=None)
    ips: tuple[Ip, ...] = fields.children(default=())
    virtualport: nic.Port | None = fields.child(default=None)
    vlan: nic.Vlan | None = fields.child(default=None)
    others: tuple[str, ...] = fields.value(".", _OTHERS, default=())


build, read = element.build, element.reader(Network)


def connections(element: ET.Element) -> int:
    """Return the number of interfaces of running VMs in an active network."""
    return int(element.get("connections", "0"))


def bridge_of(element: ET.Element) -> str | None:
    """Return the bridge of a network, None if it has none."""
    bridge = element.find("bridge")
    return None if bridge is None else bridge.get("name")


def with_identity(requested: Network, defined: Network) -> Network:
    """
    Return the request with the identity of the defined network: UUID, MAC and named bridge.

    Only a network with a bridge of libvirt's own has a MAC: libvirt refuses it for others.
    """
    keeps_bridge = requested.bridge is None and _is_generated(requested, defined)
    bridge = defined.bridge if keeps_bridge else requested.bridge
    mac = defined.mac if requested.forward in GENERATED else None
    return replace(requested, uuid=defined.uuid, mac=mac, bridge=bridge)


def _is_generated(requested: Network, defined: Network) -> bool:
    return (
        requested.forward in GENERATED
        and requested.forward == defined.forward
        and (defined.bridge or "").startswith("virbr")
    )


def differs(requested: Network, defined: Network) -> bool:
    """Return whether a definition differs from the request, apart from what libvirt fills in."""
    return _normalize(with_identity(requested, defined)) != _normalize(defined)


def _normalize(network: Network) -> Network:
    """Return a network without what has no meaning: the order of tables, and defaults."""
    dns = network.dns
    if dns is not None:
        dns = Dns(
            forwarders=dns.forwarders,
            txt=tuple(sorted(dns.txt)),
            hosts=tuple(sorted((ip, tuple(sorted(names))) for ip, names in dns.hosts)),
            srvs=tuple(sorted(dns.srvs)),
        )
    domain = network.domain
    has_all_ports = network.nat_ports == _ALL_PORTS and network.nat_addresses is None
    return replace(
        network,
        nat_ports=None if has_all_ports else network.nat_ports,
        # libvirt adds the virtual functions of a physical one while the network runs.
        addresses=() if network.physical_function else network.addresses,
        domain=domain and (domain[0], bool(domain[1])),
        dns=None if dns == Dns() else dns,
        ips=tuple(
            sorted(
                (
                    replace(ip, hosts=tuple(sorted(ip.hosts)), ranges=tuple(sorted(ip.ranges)))
                    for ip in network.ips
                ),
                key=repr,
            )
        ),
    )
