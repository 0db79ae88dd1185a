"""Checked arguments of a libvirt network, as the ``virt`` of 3006 takes them."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.core.nics import port_parameters, switch_type
from saltvirt.xml import texts
from saltvirt.xml.domain import nic
from saltvirt.xml.network import network

MODES = ("nat", "route", "open", "bridge", "private", "vepa", "passthrough", "hostdev")
# The guests' NICs are the host's own, or are attached to them.
_WITHOUT_BRIDGE = ("private", "vepa", "passthrough", "hostdev")
# The value of an argument that a call does not give.
NOT_GIVEN = "unsaid"
# Modes that reach other networks by the host's own routes.
_ROUTED = ("nat", "route", "open")
_DEVICES = ("interfaces", "addresses", "physical_function")
KEYS = (
    *("ipv4_config", "ipv6_config", "vport", "tag", "mtu", "domain", "nat"),
    *("interfaces", "addresses", "physical_function", "dns"),
)
_NONE = network.Network(name="")
_MAC = re.compile(r"([0-9a-fA-F]{1,2}:){5}[0-9a-fA-F]{1,2}")
_PCI = re.compile(r"([0-9a-f]{1,4}):([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])")
# Reads the value of an argument, with the argument's name for errors.
_Read = Callable[[str, object], str]


def from_call(
    name: object, bridge: object, forward: object, options: Mapping[str, Any]
) -> network.Network:
    """
    Return the network that a call describes.

    bridge, forward
        :data:`NOT_GIVEN` if the call leaves them out.
    options
        Any of :data:`KEYS`, as ``virt.network_define`` documents them.
    """
    mode = _mode(forward)
    addresses, ports = _nat(options.get("nat"), mode)
    interfaces = _words("interfaces", options.get("interfaces"))
    devices = tuple(map(_pci, _words("addresses", options.get("addresses"))))
    pf = options.get("physical_function")
    has_devices = any((interfaces, devices, pf))
    if mode is None and has_devices:
        raise BadArgument("forward", "is needed with interfaces, addresses, physical_function")
    mtu = options.get("mtu")
    configs = [(key, options.get(key)) for key in ("ipv4_config", "ipv6_config")]
    spec = network.Network(
        name=arguments.object_name("network", name),
        bridge=_bridge(bridge, mode, has_devices=has_devices),
        mtu=None if mtu is None else arguments.whole_number("mtu", mtu, least=68, most=65535),
        domain=_domain(options.get("domain")),
        forward=mode,
        nat_addresses=addresses,
        nat_ports=ports,
        interfaces=interfaces,
        addresses=devices,
        physical_function=arguments.link_name("physical_function", pf) if pf else None,
        virtualport=_port(options.get("vport")),
        vlan=_vlan(options.get("tag")),
        dns=_dns(options.get("dns")),
        ips=tuple(_ip(key, config) for key, config in configs if config),
    )
    _refuse_at_odds(spec)
    # libvirt takes several, and uses the first: without the rest a state finds no difference later.
    cleared_devices: dict[str, Any] = {key: getattr(_NONE, key) for key in _devices(spec)[1:]}
    return replace(spec, **cleared_devices)


def _devices(spec: network.Network) -> list[str]:
    """Return the arguments that name a network's devices, in the order of libvirt's choice."""
    return [key for key in _DEVICES if getattr(spec, key)]


def _refuse_at_odds(spec: network.Network) -> None:
    """Refuse arguments that libvirt refuses together: a test run does not ask libvirt."""
    mode, devices = spec.forward, _devices(spec)
    if mode in _ROUTED and not spec.ips:
        raise BadArgument(
            "ipv4_config", f"is missing: with forward={mode} a network has it, or ipv6_config"
        )
    if spec.mtu and mode is not None and mode not in _ROUTED:
        raise BadArgument("mtu", f"a network with forward={mode} has none; its links have")
    if devices:
        _refuse_device(spec, devices[0])


def _refuse_device(spec: network.Network, key: str) -> None:
    mode = spec.forward
    # libvirt accepts a physical function there, without any effect.
    if mode == "open" and key != "physical_function":
        raise BadArgument(key, "a network with forward=open has none")
    if mode in _ROUTED and len(spec.interfaces) > 1:
        raise BadArgument(key, f"a network with forward={mode} has one at most")
    if mode == "bridge" and spec.bridge:
        raise BadArgument(key, "goes without bridge: give bridge: null, or leave this out")


def _mode(forward: object) -> str | None:
    if forward == NOT_GIVEN:
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
    if bridge == NOT_GIVEN and mode == "bridge" and not has_devices:
        raise BadArgument("bridge", "is missing: with forward=bridge a network has it")
    if bridge in (None, "", NOT_GIVEN):
        return None
    if mode in _WITHOUT_BRIDGE:
        raise BadArgument("bridge", f"a network with forward={mode} has none; give None")
    return arguments.link_name("bridge", bridge)


def _mapping(argument: str, value: object, known_keys: set[str]) -> dict[str, Any]:
    options = arguments.mapping(argument, value) or {}
    arguments.refuse_unknown_keys(argument, options, known_keys)
    return options


def _required_value(argument: str, value: Mapping[str, Any], key: str) -> str:
    if value.get(key) in (None, ""):
        raise BadArgument(argument, f"has no {key!r}")
    return arguments.plain_text(f"{argument}:{key}", value[key])


def _words(argument: str, value: object) -> tuple[str, ...]:
    """Return the words of a text, or of a list."""
    return tuple(value.split()) if isinstance(value, str) else arguments.names(argument, value)


def _pci(address: str) -> str:
    match = _PCI.fullmatch(address.lower())
    if not match:
        raise BadArgument("addresses", f"{address!r} is not a PCI address, as in 0000:04:00.1")
    domain, bus, slot, function = (int(part, 16) for part in match.groups())
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def _span(argument: str, value: object, read: _Read) -> tuple[str, str] | None:
    bounds = _mapping(argument, value, {"start", "end"})
    if not bounds:
        return None
    start, end = (
        read(f"{argument}:{key}", _required_value(argument, bounds, key))
        for key in ("start", "end")
    )
    return start, end


def _address(argument: str, value: object) -> str:
    """Return an address in libvirt's form: another form would be a change each time."""
    return str(arguments.address(argument, value))


def _port_number(argument: str, value: object) -> str:
    return str(arguments.whole_number(argument, value, most=65535))


def _number(argument: str, value: object) -> str:
    return str(arguments.whole_number(argument, value, least=0, most=65535))


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
    options = _mapping("nat", value, {"address", "port"})
    if options and mode != "nat":
        raise BadArgument("nat", "only a network with forward=nat has it")
    kinds = (("address", _address), ("port", _number))
    return tuple(_span(f"nat:{key}", options.get(key), read) for key, read in kinds)


def _domain(value: object) -> tuple[str, bool | None] | None:
    if not value:
        return None
    entry = {"name": value} if isinstance(value, str) else value
    options = _mapping("domain", entry, {"name", "localOnly"})
    local = options.get("localOnly")
    return (
        _required_value("domain", options, "name"),
        None if local is None else arguments.boolean("domain:localOnly", local),
    )


def _port(value: object) -> nic.Port | None:
    if not value:
        return None
    entry = {"type": value} if isinstance(value, str) else value
    options = _mapping("vport", entry, {"type", "parameters"})
    parameters = arguments.mapping("vport:parameters", options.get("parameters"))
    port_options = port_parameters("vport", parameters or {})
    return nic.Port(type=switch_type("vport", options.get("type")), parameters=port_options or None)


def _vlan(value: object) -> nic.Vlan | None:
    if value is None:
        return None
    entry = {"tags": [{"id": value}]} if isinstance(value, int | str) else value
    options = _mapping("tag", entry, {"trunk", "tags"})
    rows = []
    for tag in arguments.mappings("tag:tags", options.get("tags")) or ():
        arguments.refuse_unknown_keys("tag:tags", tag, {"id", "nativeMode"})
        mode = tag.get("nativeMode")
        if mode not in (None, "tagged", "untagged"):
            raise BadArgument("tag:nativeMode", f"{mode!r}; 'tagged' or 'untagged'")
        number = arguments.whole_number("tag:id", tag.get("id"), least=0, most=4095)
        rows.append((str(number), mode))
    if not rows:
        raise BadArgument("tag", "has no tags")
    trunk = arguments.boolean("tag:trunk", options.get("trunk") or False)
    # libvirt makes it a trunk: without the flag it would be a change each time.
    is_trunk = trunk or len(rows) > 1 or any(mode for _number, mode in rows)
    return nic.Vlan(is_trunk=is_trunk, tags=tuple(rows))


def _row(
    argument: str, value: object, known_keys: set[str], **new_keys: str
) -> tuple[tuple[str, str], ...]:
    entry = _mapping(argument, value, known_keys)
    row = {
        key: _READERS[key](f"{argument}:{key}", item)
        if key in _READERS and item is not None
        else item
        for key, item in entry.items()
    }
    return tuple(sorted(texts({new_keys.get(key, key): item for key, item in row.items()}).items()))


def _dns(value: object) -> network.Dns | None:
    if not value:
        return None
    options = _mapping("dns", value, {"forwarders", "txt", "hosts", "srvs"})
    txt = arguments.mapping("dns:txt", options.get("txt")) or {}
    hosts = arguments.mapping("dns:hosts", options.get("hosts")) or {}
    srvs = arguments.mappings("dns:srvs", options.get("srvs")) or ()
    service_keys = {"name", "protocol", "target", "port", "priority", "domain", "weight"}
    for service in srvs:
        for key in ("name", "protocol"):
            _required_value("dns:srvs", service, key)
    return network.Dns(
        forwarders=tuple(
            _row("dns:forwarders", forwarder, {"domain", "addr"})
            for forwarder in arguments.mappings("dns:forwarders", options.get("forwarders")) or ()
        ),
        txt=tuple((("name", str(key)), ("value", str(txt[key]))) for key in sorted(txt, key=str)),
        hosts=tuple(
            (_address("dns:hosts", ip), _words("dns:hosts", names))
            for ip, names in sorted(hosts.items(), key=lambda item: str(item[0]))
        ),
        srvs=tuple(
            _row("dns:srvs", _without_defaults(srv), service_keys, name="service") for srv in srvs
        ),
    )


def _without_defaults(srv: Mapping[str, Any]) -> dict[str, Any]:
    """Return a service without values that libvirt omits: they would be a change each time."""
    defaults = {"port": ("",), "priority": ("", "0"), "weight": ("", "0")}
    return {k: v for k, v in srv.items() if str(v) not in defaults.get(k, ())}


def _hosts(argument: str, value: object) -> network.Rows:
    """Return the fixed leases of ``{ip: {mac, id, name}}``, or of a list with ``ip`` in each."""
    if isinstance(value, Mapping):
        entries = {ip: arguments.mapping(f"{argument}:{ip}", lease) for ip, lease in value.items()}
        value = [{**(lease or {}), "ip": ip} for ip, lease in entries.items()]
    rows = arguments.mappings(argument, value) or ()
    return tuple(sorted(_row(argument, row, {"ip", "mac", "id", "name"}) for row in rows))


def _refuse_outside_network(
    argument: str, span: tuple[str, str], net: ipaddress.IPv4Network | ipaddress.IPv6Network
) -> None:
    start, end = map(ipaddress.ip_address, span)
    if start not in net or end not in net:
        raise BadArgument(argument, f"{span[0]} to {span[1]} is not in {net}")
    if int(start) > int(end):
        raise BadArgument(argument, f"it begins at {span[0]}, behind its end, {span[1]}")


def _ip(argument: str, value: object) -> network.Ip:
    options = _mapping(argument, value, {"cidr", "dhcp_ranges", "hosts", "bootp", "tftp"})
    cidr = _required_value(argument, options, "cidr")
    try:
        net = ipaddress.ip_network(cidr)
    except ValueError as exc:
        raise BadArgument(f"{argument}:cidr", f"{cidr!r} is not a network: {exc}") from exc
    ranges = arguments.mappings(f"{argument}:dhcp_ranges", options.get("dhcp_ranges")) or ()
    spans = [_span(f"{argument}:dhcp_ranges", range_options, _address) for range_options in ranges]
    for span in filter(None, spans):
        _refuse_outside_network(f"{argument}:dhcp_ranges", span, net)
    bootp = options.get("bootp") or None
    tftp = options.get("tftp")
    return network.Ip(
        address=str(next(iter(net.hosts()))),
        prefix=net.prefixlen,
        ranges=tuple(span for span in spans if span),
        hosts=_hosts(f"{argument}:hosts", options.get("hosts")),
        bootp=_row(f"{argument}:bootp", bootp, {"file", "server"}) if bootp else None,
        tftp=None if not tftp else str(tftp),
    )
