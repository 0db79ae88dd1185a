"""<network>: a network of libvirt."""

import ipaddress
import xml.etree.ElementTree as ET
from dataclasses import dataclass, replace

from saltvirt.xml import bag, switch, tag, yes_no
from saltvirt.xml.domain import nic

# The modes for which libvirt names a bridge itself, if the definition has none.
GENERATED = (None, "nat", "route", "open")
# The ports that libvirt writes for NAT without ports.
_ALL_PORTS = ("1024", "65535")
_KNOWN = {
    *("name", "uuid", "mac", "bridge", "mtu", "domain", "forward"),
    *("virtualport", "vlan", "dns", "ip"),
}

Rows = tuple[tuple[tuple[str, str], ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dns:
    """The content of a <dns>: rows of attributes; ``hosts`` are (address, names)."""

    forwarders: Rows = ()
    txt: Rows = ()
    hosts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    srvs: Rows = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ip:
    """The host's own address in the network, and what DHCP and TFTP serve there."""

    address: str
    prefix: int
    ranges: tuple[tuple[str, str], ...] = ()
    hosts: Rows = ()
    bootp: tuple[tuple[str, str], ...] | None = None
    tftp: str | None = None

    @property
    def family(self) -> str:
        """``ipv4`` or ``ipv6``."""
        return "ipv6" if ":" in self.address else "ipv4"


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The content of a <network>; ``others`` are the names of elements without a field here."""

    name: str
    uuid: str | None = None
    mac: str | None = None
    bridge: str | None = None
    mtu: int | None = None
    domain: tuple[str, bool | None] | None = None
    forward: str | None = None
    nat_addresses: tuple[str, str] | None = None
    nat_ports: tuple[str, str] | None = None
    interfaces: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    physical_function: str | None = None
    virtualport: nic.Port | None = None
    vlan: nic.Vlan | None = None
    dns: Dns | None = None
    ips: tuple[Ip, ...] = ()
    others: tuple[str, ...] = ()


def build(network: Network) -> ET.Element:
    """Return the <network>."""
    domain = network.domain
    return tag(
        "network",
        None,
        tag("name", text=network.name),
        tag("uuid", text=network.uuid) if network.uuid else None,
        _build_forward(network),
        tag("bridge", {"name": network.bridge}) if network.bridge else None,
        tag("mtu", {"size": network.mtu}) if network.mtu else None,
        tag("mac", {"address": network.mac}) if network.mac else None,
        tag("domain", {"name": domain[0], "localOnly": yes_no(domain[1])}) if domain else None,
        _build_dns(network.dns),
        *map(_build_ip, network.ips),
        nic.build_port(network.virtualport),
        nic.build_vlan(network.vlan),
    )


def _span(name: str, span: tuple[str, str] | None) -> ET.Element | None:
    return tag(name, {"start": span[0], "end": span[1]}) if span else None


def _build_forward(network: Network) -> ET.Element | None:
    if network.forward is None:
        return None
    spans = [
        span
        for span in (
            _span("address", network.nat_addresses),
            _span("port", network.nat_ports),
        )
        if span is not None
    ]
    pf = network.physical_function
    return tag(
        "forward",
        {"mode": network.forward, "managed": "yes" if network.forward == "hostdev" else None},
        tag("nat", None, *spans) if spans else None,
        *[tag("interface", {"dev": device}) for device in network.interfaces],
        *[_build_address(address) for address in network.addresses],
        tag("pf", {"dev": pf}) if pf else None,
    )


def _build_address(address: str) -> ET.Element:
    domain, bus, slot_and_function = address.split(":")
    slot, function = slot_and_function.split(".")
    numbers = {"domain": domain, "bus": bus, "slot": slot, "function": function}
    return tag(
        "address", {"type": "pci", **{key: f"0x{number}" for key, number in numbers.items()}}
    )


def _build_dns(dns: Dns | None) -> ET.Element | None:
    if dns is None:
        return None
    return tag(
        "dns",
        None,
        *[tag("forwarder", dict(row)) for row in dns.forwarders],
        *[tag("txt", dict(row)) for row in dns.txt],
        *[
            tag("host", {"ip": ip}, *[tag("hostname", text=hostname) for hostname in names])
            for ip, names in dns.hosts
        ],
        *[tag("srv", dict(srv)) for srv in dns.srvs],
    )


def _build_ip(ip: Ip) -> ET.Element:
    handed_out = [
        *[tag("range", {"start": start, "end": end}) for start, end in ip.ranges],
        *[tag("host", dict(row)) for row in ip.hosts],
        *([tag("bootp", dict(ip.bootp))] if ip.bootp else []),
    ]
    return tag(
        "ip",
        {"family": ip.family, "address": ip.address, "prefix": ip.prefix},
        bag("tftp", {"root": ip.tftp} if ip.tftp else None),
        tag("dhcp", None, *handed_out) if handed_out else None,
    )


def read(element: ET.Element) -> Network:
    """Return the content of a <network>."""
    forward = element.find("forward")
    mtu = _attribute(element, "mtu", "size")
    port, vlan = element.find("virtualport"), element.find("vlan")
    return replace(
        _read_forward(forward, element.findtext("name") or ""),
        uuid=element.findtext("uuid"),
        mac=_attribute(element, "mac", "address"),
        bridge=_attribute(element, "bridge", "name"),
        mtu=int(mtu) if mtu else None,
        domain=_read_domain(element.find("domain")),
        virtualport=nic.read_port(port),
        vlan=nic.read_vlan(vlan),
        dns=_read_dns(element.find("dns")),
        ips=tuple(map(_read_ip, element.iterfind("ip"))),
        others=tuple(sorted({child.tag for child in element} - _KNOWN)),
    )


def connections(element: ET.Element) -> int:
    """Return the number of interfaces of running VMs in an active network."""
    return int(element.get("connections", "0"))


def bridge_of(element: ET.Element) -> str | None:
    """Return the bridge of a network, None if it has none."""
    return _attribute(element, "bridge", "name")


def _attribute(element: ET.Element, path: str, key: str) -> str | None:
    child = element.find(path)
    return None if child is None else child.get(key)


def _read_span(element: ET.Element | None) -> tuple[str, str] | None:
    return None if element is None else (element.get("start", ""), element.get("end", ""))


def _read_domain(element: ET.Element | None) -> tuple[str, bool | None] | None:
    return None if element is None else (element.get("name", ""), switch(element.get("localOnly")))


def _read_forward(forward: ET.Element | None, name: str) -> Network:
    if forward is None:
        return Network(name=name)
    devices = tuple(interface.get("dev", "") for interface in forward.iterfind("interface"))
    # The older way to name one interface; libvirt repeats the first one there.
    dev = forward.get("dev")
    return Network(
        name=name,
        forward=forward.get("mode", "nat"),
        nat_addresses=_read_span(forward.find("nat/address")),
        nat_ports=_read_span(forward.find("nat/port")),
        interfaces=devices or ((dev,) if dev else ()),
        addresses=tuple(map(_read_address, forward.iterfind("address"))),
        physical_function=_attribute(forward, "pf", "dev"),
    )


def _read_address(element: ET.Element) -> str:
    parts = ("domain", "bus", "slot", "function")
    domain, bus, slot, function = (int(element.get(part, "0"), 16) for part in parts)
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _rows(element: ET.Element, name: str) -> Rows:
    return tuple(tuple(sorted(row.attrib.items())) for row in element.iterfind(name))


def _read_dns(element: ET.Element | None) -> Dns | None:
    if element is None:
        return None
    hosts = tuple(
        (host.get("ip", ""), tuple(name.text or "" for name in host.iterfind("hostname")))
        for host in element.iterfind("host")
    )
    return Dns(
        forwarders=_rows(element, "forwarder"),
        txt=_rows(element, "txt"),
        hosts=hosts,
        srvs=_rows(element, "srv"),
    )


def _read_ip(element: ET.Element) -> Ip:
    address = element.get("address", "")
    length = element.get("prefix") or element.get("netmask")
    # Without either, libvirt goes by the class of the address.
    prefix = ipaddress.ip_network(f"{address}/{length}", strict=False).prefixlen if length else 0
    bootp = element.find("dhcp/bootp")
    return Ip(
        address=address,
        prefix=prefix,
        ranges=tuple(
            (span.get("start", ""), span.get("end", "")) for span in element.iterfind("dhcp/range")
        ),
        hosts=_rows(element, "dhcp/host"),
        bootp=None if bootp is None else tuple(sorted(bootp.attrib.items())),
        tftp=_attribute(element, "tftp", "root"),
    )


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
