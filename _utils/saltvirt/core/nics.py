"""NICs from ``virt:nic`` and ``interfaces``, checked, as :class:`saltvirt.core.model.Nic`."""

import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.core.model import DEFAULT_BRIDGE, Nic, host_need

TYPES = ("bridge", "network", "direct", "hostdev", "user", "ethernet", "vdpa")
_MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]")
# libvirt's filter that keeps a guest to its own MAC and addresses.
_CLEAN = "clean-traffic"
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MODEL = re.compile(r"[A-Za-z0-9_-]+")
_MODES = ("bridge", "vepa", "private", "passthrough")
_UUIDS = ("interfaceid", "instanceid")
_SWITCHES = ("openvswitch", "802.1Qbg", "802.1Qbh", "midonet")
# The types that can have each key; libvirt:
# https://libvirt.org/formatdomain.html#network-interfaces
_ONLY = {
    "vlan": ("bridge", "network", "hostdev", "direct"),
    "filter": ("bridge", "network", "ethernet"),
    "portgroup": ("network",),
    "mode": ("direct",),
    "virtualport": ("bridge", "network", "direct", "hostdev"),
    "bandwidth": ("bridge", "network", "direct", "ethernet"),
    "queues": ("bridge", "network", "direct", "ethernet"),
    "mtu": ("bridge", "network", "direct", "ethernet"),
    "guest": TYPES,
}
KEYS = {"name", "type", "source", "mac", "model", "bridge", "network", *_ONLY}


def mac_for(vm: str, nic: str) -> str:
    """
    Return the NIC's MAC: the same for the same VM and NIC, unicast and locally administered.

    Forty of its bits are the digest's: among 10,000 NICs two are equal in one of 20,000 clouds;
    with QEMU's own three-byte prefix, in nearly every cloud.
    """
    digest = hashlib.sha256(f"{vm}/{nic}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x52, *digest[:5]))


def nic(vm: str, entry: dict[str, Any], *, is_whole: bool = True) -> Nic:
    """
    Return one NIC of a VM; refuse what libvirt could not build, or would quietly leave out.

    is_whole
        Whether the entry has all of the NIC. If not, a profile may have its type and its source.
    """
    label = f"interface {entry['name']!r}"
    arguments.refuse_unknown_keys(label, entry, KEYS)
    kind, source = _kind(label, entry, is_whole)
    is_of_type = is_whole or bool(with_type_and_source(entry).get("type"))
    mac = str(entry.get("mac") or mac_for(vm, entry["name"])).lower()
    if not _MAC.fullmatch(mac) or int(mac[:2], 16) & 1:
        raise BadArgument(label, f"{mac!r} is not a unicast MAC address")
    model = str(entry.get("model") or "virtio")
    if not _MODEL.fullmatch(model):
        raise BadArgument(label, f"model {model!r}; a name such as virtio or e1000e")
    vm_nic = Nic(
        name=entry["name"],
        type=kind,
        source=source,
        mac=mac,
        model=model,
        has_model=bool(entry.get("model")),
        extra=_extra(label, kind if is_of_type else None, entry),
    )
    if is_whole or entry.get("model"):
        _refuse_idle_queues(label, vm_nic)
    if "filter" in vm_nic.extra and vm_nic.is_switched:
        raise BadArgument(label, "libvirt's filters do not reach the ports of Open vSwitch")
    return vm_nic


def _refuse_idle_queues(label: str, vm_nic: Nic) -> None:
    """Refuse queues that libvirt omits: they would be a change each time."""
    if "queues" in vm_nic.extra and not vm_nic.model.startswith("virtio"):
        raise BadArgument(label, f"queues are for model virtio, not for {vm_nic.model}")


def _extra(label: str, kind: str | None, entry: dict[str, Any]) -> dict[str, Any]:
    """Return options that only some types of NICs have; check them if the type is known."""
    options = {key: entry[key] for key in _ONLY if entry.get(key) is not None}
    for key in options:
        if kind is not None and kind not in _ONLY[key]:
            raise BadArgument(label, f"{key} is for {', '.join(_ONLY[key])}, not for type {kind}")
    return {key: _READERS[key](f"{label}: {key}", value) for key, value in options.items()}


def with_type_and_source(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with its ``bridge`` or ``network`` as a type and a source."""
    for short in ("network", "bridge"):
        if entry.get(short):
            other_keys = {
                key: value for key, value in entry.items() if key not in ("bridge", "network")
            }
            return {**other_keys, "type": short, "source": entry[short]}
    return entry


def override(entry: dict[str, Any], call_entry: dict[str, Any]) -> dict[str, Any]:
    """
    Return an entry of a profile with the values of a call for that NIC, in any spelling.

    A call with another type and no source drops the profile's source: it names a different object.
    """
    old, new = with_type_and_source(entry), with_type_and_source(call_entry)
    is_moved = bool(new.get("type")) and new["type"] != (old.get("type") or "bridge")
    return {**old, **({"source": None} if is_moved else {}), **new}


def _kind(label: str, entry: dict[str, Any], is_whole: bool) -> tuple[str, str | None]:
    entry = with_type_and_source(entry)
    kind, source = entry.get("type") or "bridge", entry.get("source")
    if kind not in TYPES:
        raise BadArgument(label, f"type {kind!r}; one of {', '.join(TYPES)}")
    if kind == "bridge" and not source:
        source = DEFAULT_BRIDGE
    if is_whole and kind in ("network", "direct", "hostdev", "vdpa") and not source:
        raise BadArgument(label, f"type {kind} has no source; say which {_SOURCES.get(kind, kind)}")
    return kind, source if source is None else str(source)


_SOURCES = {"direct": "link of the host", "hostdev": "PCI address, or network of such devices"}


def pci(source: str | None) -> dict[str, str] | None:
    """Return the parts of a PCI address ``0000:03:10.0`` as libvirt takes them, or None."""
    if not _PCI.fullmatch(str(source).lower()):
        return None
    domain, bus, address = str(source).lower().split(":")
    slot, _dot, function = address.partition(".")
    return {
        "type": "pci",
        "domain": f"0x{domain}",
        "bus": f"0x{bus}",
        "slot": f"0x{slot}",
        "function": f"0x{function}",
    }


def _vlan(label: str, value: Any) -> dict[str, Any]:
    """Return ``{"tags", "trunk", "native"}`` from ``7``, ``[10, 20-30]`` or such a mapping."""
    options = value if isinstance(value, dict) else {"tags": value}
    arguments.refuse_unknown_keys(label, options, {"tags", "native"})
    tags = arguments.vlans(label, options.get("tags") or [])
    native = options.get("native")
    if native is not None:
        native = arguments.whole_number(f"{label}: native", native, most=4094)
        tags = tuple(sorted({*tags, native}))
    if not tags:
        raise BadArgument(label, "no tag is given")
    is_trunk = len(tags) > 1 or native is not None or isinstance(options.get("tags"), list | tuple)
    return {"tags": list(tags), "trunk": is_trunk, "native": native}


def _bandwidth(label: str, value: Any) -> dict[str, dict[str, int]]:
    """Return ``{"inbound" | "outbound": {average, peak, burst}}``, in KiB/s and KiB."""
    value = value if isinstance(value, dict) else {}
    arguments.refuse_unknown_keys(label, value, {"in", "out"})
    out = {
        name: _limits(f"{label}:{side}", value[side])
        for side, name in (("in", "inbound"), ("out", "outbound"))
        if value.get(side) is not None
    }
    if not out:
        raise BadArgument(label, "write {in: 1024, out: {average: 512, peak: 1024, burst: 256}}")
    return out


def _limits(label: str, values: Any) -> dict[str, int]:
    values = values if isinstance(values, dict) else {"average": values}
    arguments.refuse_unknown_keys(label, values, {"average", "peak", "burst"})
    limits = {key: arguments.whole_number(f"{label}:{key}", value) for key, value in values.items()}
    if "average" not in limits:
        raise BadArgument(label, "has no 'average' (KiB per second)")
    if limits.get("peak", limits["average"]) < limits["average"]:
        raise BadArgument(label, "the peak is below the average")
    return limits


def _filter(label: str, value: Any) -> dict[str, Any]:
    """Return ``{"name", "parameters": [(name, value)]}``; ``ip`` pins the guest's addresses."""
    options = value if isinstance(value, dict) else {"name": value}
    arguments.refuse_unknown_keys(label, options, {"name", "ip", "parameters"})
    name = options.get("name") or _CLEAN
    if not isinstance(name, str) or not _WORD.fullmatch(name):
        raise BadArgument(label, f"{name!r} cannot name a filter")
    parameters = [
        ("IP", arguments.address(f"{label}: ip", guest_ip))
        for guest_ip in arguments.names(label, options.get("ip"))
    ]
    if name == _CLEAN and any(":" in str(address) for _ip, address in parameters):
        raise BadArgument(label, f"{_CLEAN} knows IPv4 addresses alone; give another filter's name")
    for key, item in (arguments.mapping(label, options.get("parameters")) or {}).items():
        parameters.append((str(key), str(item)))
    return {"name": name, "parameters": parameters}


def _virtualport(label: str, value: Any) -> dict[str, Any]:
    """Return ``{"type", "parameters"}`` from ``openvswitch`` or a mapping with parameters."""
    options = dict(value) if isinstance(value, dict) else {"type": value}
    kind = switch_type(label, options.pop("type", None))
    return {"type": kind, "parameters": port_parameters(label, options)}


def switch_type(label: str, kind: object) -> str:
    """Return the type of a virtual switch."""
    if kind not in _SWITCHES:
        raise BadArgument(label, f"type {kind!r}; one of {', '.join(_SWITCHES)}")
    return str(kind)


def port_parameters(label: str, parameters: Mapping[Any, Any]) -> dict[str, str]:
    """Return the parameters of a switch port, with UUIDs as libvirt writes them."""
    # A UUID in capitals would be a change each time; libvirt keeps any other text as it is.
    return {
        str(key): (arguments.uuid if key in _UUIDS else arguments.plain_text)(
            f"{label}: {key}", value
        )
        for key, value in parameters.items()
        if value is not None
    }


def _mode(label: str, value: Any) -> str:
    if value not in _MODES:
        raise BadArgument(label, f"{value!r}; one of {', '.join(_MODES)}")
    return str(value)


def _name(label: str, value: Any) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise BadArgument(label, f"{value!r} is not a name")
    return value


def _guest(label: str, value: Any) -> dict[str, Any]:
    """Return ``{"dhcp", "addresses", "gateways", "dns", "search"}`` for the guest's own setup."""
    options = {"dhcp": True} if value == "dhcp" else value
    if not isinstance(options, dict):
        raise BadArgument(label, f"{value!r}; dhcp, or {{addresses: [10.0.0.4/16], gateway: ...}}")
    known_keys = {"dhcp", "addresses", "gateway", "dns", "search"}
    arguments.refuse_unknown_keys(label, options, known_keys)
    addresses = arguments.interface_addresses(f"{label}: addresses", options.get("addresses")) or ()
    dhcp = arguments.boolean(f"{label}: dhcp", options.get("dhcp", not addresses))
    gateways, servers = (
        tuple(
            arguments.address(f"{label}: {key}", item)
            for item in arguments.names(label, options.get(key))
        )
        for key in ("gateway", "dns")
    )
    if gateways and not addresses:
        raise BadArgument(label, "a gateway needs addresses; DHCP brings its own")
    _refuse_gateways(f"{label}: gateway", [str(gateway) for gateway in gateways], addresses)
    search = arguments.names(f"{label}: search", options.get("search"))
    return {
        "dhcp": dhcp,
        "addresses": addresses,
        "gateways": gateways,
        "dns": servers,
        "search": search,
    }


def _refuse_gateways(label: str, gateways: Iterable[str], addresses: Iterable[str]) -> None:
    """Refuse gateways that would leave a guest without a default route."""
    interfaces = [ipaddress.ip_interface(address) for address in addresses]
    gateways_by_version: dict[int, object] = {}
    for gateway in map(ipaddress.ip_address, gateways):
        first_gateway = gateways_by_version.setdefault(gateway.version, gateway)
        if first_gateway is not gateway:
            raise BadArgument(
                label,
                f"{first_gateway} and {gateway} are both IPv{gateway.version}; a NIC has one "
                "gateway of "
                "each family",
            )
        reason = _why_no_gateway(
            gateway, [interface for interface in interfaces if interface.version == gateway.version]
        )
        if reason:
            raise BadArgument(label, f"{gateway} {reason}")


def _why_no_gateway(
    gateway: ipaddress.IPv4Address | ipaddress.IPv6Address,
    interfaces: Sequence[ipaddress.IPv4Interface | ipaddress.IPv6Interface],
) -> str | None:
    """Return why a guest with some addresses of its family cannot have this gateway, or None."""
    family = f"IPv{gateway.version}"
    if not interfaces:
        return f"is {family}, and addresses has no {family} address"
    if any(address.ip == gateway for address in interfaces):
        return "is the guest's own address"
    if gateway.is_unspecified or gateway.is_multicast or gateway.is_loopback:
        return "is no address of a router"
    if any(_is_edge(gateway, address) for address in interfaces):
        return "is the network's own or broadcast address"
    return None


def _is_edge(gateway: object, address: ipaddress.IPv4Interface | ipaddress.IPv6Interface) -> bool:
    """Return whether a gateway is the network or broadcast address of an IPv4 interface."""
    network = address.network
    is_small = network.version == 6 or network.prefixlen > 30
    return not is_small and gateway in (network.network_address, network.broadcast_address)


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "guest": _guest,
    "vlan": _vlan,
    "bandwidth": _bandwidth,
    "filter": _filter,
    "virtualport": _virtualport,
    "mode": _mode,
    "portgroup": _name,
    "queues": lambda what, value: arguments.whole_number(what, value, most=256),
    "mtu": lambda what, value: arguments.whole_number(what, value, least=68, most=65535),
}


def refuse_equal_macs(nics: Iterable[Nic]) -> None:
    """Refuse two NICs of one VM with the same address."""
    names_by_mac: dict[str, str] = {}
    for vm_nic in nics:
        if vm_nic.mac in names_by_mac:
            raise BadArgument(
                f"interface {vm_nic.name!r}",
                f"has the MAC {vm_nic.mac} of interface {names_by_mac[vm_nic.mac]!r}; give another",
            )
        names_by_mac[vm_nic.mac] = vm_nic.name


class ConnectedNic(Protocol):
    """The host's side of a NIC, of a call (:class:`saltvirt.core.model.Nic`) or of domain XML."""

    @property
    def type(self) -> str | None:
        """One of ``TYPES``, or another type of libvirt."""

    @property
    def on(self) -> str | None:
        """The bridge, network or link of the host."""

    @property
    def is_tagged(self) -> bool:
        """Whether it has VLAN tags."""

    @property
    def is_switched(self) -> bool:
        """Whether it is a port of Open vSwitch."""


def host_needs(nics: Iterable[ConnectedNic]) -> dict[str, Any]:
    """
    Return what NICs need of a host: ``{"bridges", "networks", "links", "bridge_vlans"}``.

    ``links`` are those of macvtap, and Open vSwitch's bridges, which are not Linux bridges;
    ``bridge_vlans`` means that a Linux bridge must tag, which libvirt can from 11.0 on.
    """
    vm_needs = [
        (host_need(vm_nic.type, is_switched=vm_nic.is_switched), vm_nic.on, vm_nic.is_tagged)
        for vm_nic in nics
        if vm_nic.on
    ]
    return {
        **{
            need: tuple(sorted({place for vm_need, place, _tagged in vm_needs if vm_need == need}))
            for need in ("bridges", "networks", "links")
        },
        "bridge_vlans": any(need == "bridges" and tagged for need, _place, tagged in vm_needs),
    }
