"""What a call says of a network of libvirt's, checked: the arguments of 3006's ``virt``."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from saltvirt import arguments
from saltvirt.errors import BadArgument
from saltvirt.nics import port_parameters, switch_type
from saltvirt.xml import network, nic, texts

MODES = ("nat", "route", "open", "bridge", "private", "vepa", "passthrough", "hostdev")
# The guests' NICs are those of the host itself, or are on them.
_WITHOUT_BRIDGE = ("private", "vepa", "passthrough", "hostdev")
# What a call says that does not say it.
UNSAID = "unsaid"
# They lead elsewhere by the host's own routes.
_ROUTED = ("nat", "route", "open")
_DEVICES = ("interfaces", "addresses", "physical_function")
KEYS = (
    *("ipv4_config", "ipv6_config", "vport", "tag", "mtu", "domain", "nat"),
    *("interfaces", "addresses", "physical_function", "dns"),
)
_NONE = network.Network(name="")
_MAC = re.compile(r"([0-9a-fA-F]{1,2}:){5}[0-9a-fA-F]{1,2}")
_PCI = re.compile(r"([0-9a-f]{1,4}):([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])")
# Reads the value of an argument, which it is told to name it in what it raises.
_Read = Callable[[str, object], str]


def of(name: object, bridge: object, forward: object, given: Mapping[str, Any]) -> network.Network:
    """
    Return the network that a call asks for.

    bridge, forward
        :data:`UNSAID` if the call does not say them.
    given
        Any of :data:`KEYS`, as ``virt.network_define`` documents them.
    """
    mode = _mode(forward)
    addresses, ports = _nat(given.get("nat"), mode)
    interfaces = _words("interfaces", given.get("interfaces"))
    devices = tuple(map(_pci, _words("addresses", given.get("addresses"))))
    pf = given.get("physical_function")
    has_devices = any((interfaces, devices, pf))
    if mode is None and has_devices:
        raise BadArgument("forward", "is needed with interfaces, addresses, physical_function")
    mtu = given.get("mtu")
    configs = [(key, given.get(key)) for key in ("ipv4_config", "ipv6_config")]
    made = network.Network(
        name=arguments.object_name("network", name),
        bridge=_bridge(bridge, mode, has_devices=has_devices),
        mtu=None if mtu is None else arguments.whole("mtu", mtu, least=68, most=65535),
        domain=_domain(given.get("domain")),
        forward=mode,
        nat_addresses=addresses,
        nat_ports=ports,
        interfaces=interfaces,
        addresses=devices,
        physical_function=arguments.link_name("physical_function", pf) if pf else None,
        virtualport=_port(given.get("vport")),
        vlan=_vlan(given.get("tag")),
        dns=_dns(given.get("dns")),
        ips=tuple(_ip(key, config) for key, config in configs if config),
    )
    _refuse_at_odds(made)
    # libvirt takes several, and uses the first: so a state finds no difference afterwards.
    unused: dict[str, Any] = {key: getattr(_NONE, key) for key in _devices(made)[1:]}
    return replace(made, **unused)


def _devices(made: network.Network) -> list[str]:
    """Return by which arguments a network says its devices, in the order of libvirt's choice."""
    return [key for key in _DEVICES if getattr(made, key)]


def _refuse_at_odds(made: network.Network) -> None:
    """Refuse arguments that libvirt does not take together: a test would not be told of it."""
    mode, devices = made.forward, _devices(made)
    if mode in _ROUTED and not made.ips:
        raise BadArgument(
            "ipv4_config", f"is missing: with forward={mode} a network has it, or ipv6_config"
        )
    if made.mtu and mode is not None and mode not in _ROUTED:
        raise BadArgument("mtu", f"a network with forward={mode} has none; its links have")
    if devices:
        _refuse_device(made, devices[0])


def _refuse_device(made: network.Network, key: str) -> None:
    mode = made.forward
    # A physical function there does nothing, and libvirt takes it.
    if mode == "open" and key != "physical_function":
        raise BadArgument(key, "a network with forward=open has none")
    if mode in _ROUTED and len(made.interfaces) > 1:
        raise BadArgument(key, f"a network with forward={mode} has one at most")
    if mode == "bridge" and made.bridge:
        raise BadArgument(key, "goes without bridge: give bridge: null, or leave this out")


def _mode(forward: object) -> str | None:
    if forward == UNSAID:
        raise BadArgument(
            "forward", f"is missing; one of {', '.join(MODES)}, or null for an isolated network"
        )
    if forward in (None, "", "none", "None", "isolated"):
        return None
    if forward not in MODES:
        raise BadArgument(
            "forward", f"{forward!r}; one of {', '.join(MODES)}, or None for an isolated network"
        )
    return str(forward)


def _bridge(bridge: object, mode: str | None, *, has_devices: bool) -> str | None:
    if bridge == UNSAID and mode == "bridge" and not has_devices:
        raise BadArgument("bridge", "is missing: with forward=bridge a network has it")
    if bridge in (None, "", UNSAID):
        return None
    if mode in _WITHOUT_BRIDGE:
        raise BadArgument("bridge", f"a network with forward={mode} has none; give None")
    return arguments.link_name("bridge", bridge)


def _mapping(argument: str, value: object, known: set[str]) -> dict[str, Any]:
    found = arguments.mapping(argument, value) or {}
    arguments.refuse_unknown_keys(argument, found, known)
    return found


def _needed(argument: str, value: Mapping[str, Any], key: str) -> str:
    if value.get(key) in (None, ""):
        raise BadArgument(argument, f"has no {key!r}")
    return arguments.plain(f"{argument}:{key}", value[key])


def _words(argument: str, value: object) -> tuple[str, ...]:
    """Return the words of a text, or of a list."""
    return tuple(value.split()) if isinstance(value, str) else arguments.names(argument, value)


def _pci(address: str) -> str:
    found = _PCI.fullmatch(address.lower())
    if not found:
        raise BadArgument("addresses", f"{address!r} is not a PCI address, as in 0000:04:00.1")
    domain, bus, slot, function = (int(part, 16) for part in found.groups())
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _span(argument: str, value: object, read: _Read) -> tuple[str, str] | None:
    found = _mapping(argument, value, {"start", "end"})
    if not found:
        return None
    start, end = (
        read(f"{argument}:{key}", _needed(argument, found, key)) for key in ("start", "end")
    )
    return start, end


def _address(argument: str, value: object) -> str:
    """Return an address as libvirt writes it: in another form it would be a change each time."""
    return str(arguments.address(argument, value))


def _port_number(argument: str, value: object) -> str:
    return str(arguments.whole(argument, value, most=65535))


def _number(argument: str, value: object) -> str:
    return str(arguments.whole(argument, value, least=0, most=65535))


def _mac(argument: str, value: object) -> str:
    if not _MAC.fullmatch(str(value)):
        raise BadArgument(argument, f"{value!r} is not a MAC address")
    return str(value)


_READERS: dict[str, _Read] = {
    **dict.fromkeys(("ip", "addr", "server"), _address),
    **dict.fromkeys(("priority", "weight"), _number),
    "port": _port_number,
    "mac": _mac,
}


def _nat(value: object, mode: str | None) -> tuple[tuple[str, str] | None, ...]:
    found = _mapping("nat", value, {"address", "port"})
    if found and mode != "nat":
        raise BadArgument("nat", "only a network with forward=nat has it")
    kinds = (("address", _address), ("port", _number))
    return tuple(_span(f"nat:{key}", found.get(key), read) for key, read in kinds)


def _domain(value: object) -> tuple[str, bool | None] | None:
    if not value:
        return None
    given = {"name": value} if isinstance(value, str) else value
    found = _mapping("domain", given, {"name", "localOnly"})
    local = found.get("localOnly")
    return (
        _needed("domain", found, "name"),
        None if local is None else arguments.boolean("domain:localOnly", local),
    )


def _port(value: object) -> nic.Port | None:
    if not value:
        return None
    given = {"type": value} if isinstance(value, str) else value
    found = _mapping("vport", given, {"type", "parameters"})
    parameters = arguments.mapping("vport:parameters", found.get("parameters"))
    said = port_parameters("vport", parameters or {})
    return nic.Port(type=switch_type("vport", found.get("type")), parameters=said or None)


def _vlan(value: object) -> nic.Vlan | None:
    if value is None:
        return None
    given = {"tags": [{"id": value}]} if isinstance(value, int | str) else value
    found = _mapping("tag", given, {"trunk", "tags"})
    rows = []
    for one in arguments.mappings("tag:tags", found.get("tags")) or ():
        arguments.refuse_unknown_keys("tag:tags", one, {"id", "nativeMode"})
        mode = one.get("nativeMode")
        if mode not in (None, "tagged", "untagged"):
            raise BadArgument("tag:nativeMode", f"{mode!r}; 'tagged' or 'untagged'")
        number = arguments.whole("tag:id", one.get("id"), least=0, most=4095)
        rows.append((str(number), mode))
    if not rows:
        raise BadArgument("tag", "has no tags")
    trunk = arguments.boolean("tag:trunk", found.get("trunk") or False)
    # libvirt makes it one, and without that it would be a change each time.
    is_trunk = trunk or len(rows) > 1 or any(mode for _number, mode in rows)
    return nic.Vlan(is_trunk=is_trunk, tags=tuple(rows))


def _row(
    argument: str, value: object, known: set[str], **renamed: str
) -> tuple[tuple[str, str], ...]:
    given = _mapping(argument, value, known)
    found = {
        key: _READERS[key](f"{argument}:{key}", one) if key in _READERS and one is not None else one
        for key, one in given.items()
    }
    return tuple(sorted(texts({renamed.get(key, key): one for key, one in found.items()}).items()))


def _dns(value: object) -> network.Dns | None:
    if not value:
        return None
    found = _mapping("dns", value, {"forwarders", "txt", "hosts", "srvs"})
    txt = arguments.mapping("dns:txt", found.get("txt")) or {}
    hosts = arguments.mapping("dns:hosts", found.get("hosts")) or {}
    srvs = arguments.mappings("dns:srvs", found.get("srvs")) or ()
    known = {"name", "protocol", "target", "port", "priority", "domain", "weight"}
    for one in srvs:
        for key in ("name", "protocol"):
            _needed("dns:srvs", one, key)
    return network.Dns(
        forwarders=tuple(
            _row("dns:forwarders", one, {"domain", "addr"})
            for one in arguments.mappings("dns:forwarders", found.get("forwarders")) or ()
        ),
        txt=tuple((("name", str(key)), ("value", str(txt[key]))) for key in sorted(txt, key=str)),
        hosts=tuple(
            (_address("dns:hosts", ip), _words("dns:hosts", names))
            for ip, names in sorted(hosts.items(), key=lambda item: str(item[0]))
        ),
        srvs=tuple(_row("dns:srvs", _weighed(one), known, name="service") for one in srvs),
    )


def _weighed(srv: Mapping[str, Any]) -> dict[str, Any]:
    """Return a service without what libvirt leaves out, which would be a change else."""
    left_out = {"port": ("",), "priority": ("", "0"), "weight": ("", "0")}
    return {k: v for k, v in srv.items() if str(v) not in left_out.get(k, ())}


def _hosts(argument: str, value: object) -> network.Rows:
    """Return the fixed leases of ``{ip: {mac, id, name}}``, or of a list with ``ip`` in each."""
    if isinstance(value, Mapping):
        given = {ip: arguments.mapping(f"{argument}:{ip}", rest) for ip, rest in value.items()}
        value = [{**(rest or {}), "ip": ip} for ip, rest in given.items()]
    rows = arguments.mappings(argument, value) or ()
    return tuple(sorted(_row(argument, one, {"ip", "mac", "id", "name"}) for one in rows))


def _refuse_elsewhere(
    argument: str, span: tuple[str, str], net: ipaddress.IPv4Network | ipaddress.IPv6Network
) -> None:
    start, end = map(ipaddress.ip_address, span)
    if start not in net or end not in net:
        raise BadArgument(argument, f"{span[0]} to {span[1]} is not in {net}")
    if int(start) > int(end):
        raise BadArgument(argument, f"it begins at {span[0]}, behind its end, {span[1]}")


def _ip(argument: str, value: object) -> network.Ip:
    found = _mapping(argument, value, {"cidr", "dhcp_ranges", "hosts", "bootp", "tftp"})
    cidr = _needed(argument, found, "cidr")
    try:
        net = ipaddress.ip_network(cidr)
    except ValueError as exc:
        raise BadArgument(f"{argument}:cidr", f"{cidr!r} is not a network: {exc}") from exc
    ranges = arguments.mappings(f"{argument}:dhcp_ranges", found.get("dhcp_ranges")) or ()
    spans = [_span(f"{argument}:dhcp_ranges", one, _address) for one in ranges]
    for span in filter(None, spans):
        _refuse_elsewhere(f"{argument}:dhcp_ranges", span, net)
    bootp = found.get("bootp") or None
    tftp = found.get("tftp")
    return network.Ip(
        address=str(next(iter(net.hosts()))),
        prefix=net.prefixlen,
        ranges=tuple(span for span in spans if span),
        hosts=_hosts(f"{argument}:hosts", found.get("hosts")),
        bootp=_row(f"{argument}:bootp", bootp, {"file", "server"}) if bootp else None,
        tftp=None if not tftp else str(tftp),
    )
