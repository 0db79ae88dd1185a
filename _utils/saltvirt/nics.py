"""NICs: what users write in ``virt:nic`` and ``interfaces``, checked, as our noun."""

import hashlib
import re

from saltvirt import arguments
from saltvirt.errors import BadArgument
from saltvirt.model import Nic

TYPES = ("bridge", "network", "direct", "hostdev", "user", "ethernet", "vdpa")
_MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MODES = ("bridge", "vepa", "private", "passthrough")
_SWITCHES = ("openvswitch", "802.1Qbg", "802.1Qbh", "midonet")
# Which types can have what; libvirt: https://libvirt.org/formatdomain.html#network-interfaces
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


def mac_for(vm, nic):
    """
    Return the NIC's MAC: the same for the same VM and NIC, unicast and locally administered.

    Forty bits of it are the digest's: among 10,000 NICs two are equal once in 20,000 clouds,
    where QEMU's own three-byte prefix would leave that to every second one.
    """
    digest = hashlib.sha256(f"{vm}/{nic}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x52, *digest[:5]))


def nic(vm, entry):
    """Return one NIC of a VM; refuse what libvirt could not build, or would quietly leave out."""
    what = f"interface {entry['name']!r}"
    arguments.refuse_unknown_keys(what, entry, KEYS)
    kind, source = _kind(what, entry)
    mac = str(entry.get("mac") or mac_for(vm, entry["name"])).lower()
    if not _MAC.fullmatch(mac) or int(mac[:2], 16) & 1:
        raise BadArgument(what, f"{mac!r} is no unicast MAC address")
    model = str(entry.get("model") or "virtio")
    if not _WORD.fullmatch(model):
        raise BadArgument(what, f"model {model!r}; a name such as virtio or e1000e")
    extra = {}
    for key, types in _ONLY.items():
        if entry.get(key) is None:
            continue
        if kind not in types:
            raise BadArgument(what, f"{key} is for {', '.join(types)}, not for type {kind}")
        extra[key] = _READERS[key](f"{what}: {key}", entry[key])
    is_switch = extra.get("virtualport", {}).get("type") == "openvswitch"
    if "filter" in extra and is_switch:
        raise BadArgument(what, "libvirt's filters do not reach the ports of Open vSwitch")
    return Nic(name=entry["name"], type=kind, source=source, mac=mac, model=model, extra=extra)


def _kind(what, entry):
    kind, source = entry.get("type"), entry.get("source")
    for short in ("bridge", "network"):
        if entry.get(short):
            kind, source = short, entry[short]
    kind = kind or "bridge"
    if kind not in TYPES:
        raise BadArgument(what, f"type {kind!r}; one of {', '.join(TYPES)}")
    if kind in ("bridge", "network", "direct", "hostdev", "vdpa") and not source:
        raise BadArgument(what, f"type {kind} has no source; say which {_SOURCES.get(kind, kind)}")
    return kind, source if source is None else str(source)


_SOURCES = {"direct": "link of the host", "hostdev": "PCI address, or network of such devices"}


def pci(source):
    """Return the parts of a PCI address ``0000:03:10.0`` as libvirt wants them, or None."""
    if not _PCI.fullmatch(str(source).lower()):
        return None
    domain, bus, rest = str(source).lower().split(":")
    slot, _dot, function = rest.partition(".")
    return {"type": "pci", "domain": f"0x{domain}", "bus": f"0x{bus}", "slot": f"0x{slot}",
            "function": f"0x{function}"}  # fmt: skip


def _vlan(what, value):
    """Return ``{"tags", "trunk", "native"}`` from ``7``, ``[10, 20-30]`` or such a mapping."""
    given = value if isinstance(value, dict) else {"tags": value}
    arguments.refuse_unknown_keys(what, given, {"tags", "native"})
    tags = arguments.vlans(what, given.get("tags") or [])
    native = given.get("native")
    if native is not None:
        native = arguments.whole(f"{what}: native", native, most=4094)
        tags = tuple(sorted({*tags, native}))
    if not tags:
        raise BadArgument(what, "no tag is given")
    is_trunk = len(tags) > 1 or native is not None or isinstance(given.get("tags"), list | tuple)
    return {"tags": list(tags), "trunk": is_trunk, "native": native}


def _bandwidth(what, value):
    """Return ``{"inbound" | "outbound": {average, peak, burst}}``, in KiB/s and KiB."""
    value = value if isinstance(value, dict) else {}
    arguments.refuse_unknown_keys(what, value, {"in", "out"})
    out = {}
    for side, name in (("in", "inbound"), ("out", "outbound")):
        limits = value.get(side)
        if limits is None:
            continue
        limits = limits if isinstance(limits, dict) else {"average": limits}
        arguments.refuse_unknown_keys(f"{what}:{side}", limits, {"average", "peak", "burst"})
        out[name] = {k: arguments.whole(f"{what}:{side}:{k}", v) for k, v in limits.items()}
        if "average" not in out[name]:
            raise BadArgument(f"{what}:{side}", "has no 'average' (KiB per second)")
        if out[name].get("peak", out[name]["average"]) < out[name]["average"]:
            raise BadArgument(f"{what}:{side}", "the peak is below the average")
    if not out:
        raise BadArgument(what, "write {in: 1024, out: {average: 512, peak: 1024, burst: 256}}")
    return out


def _filter(what, value):
    """Return ``{"name", "parameters": [(name, value)]}``; ``ip`` pins the guest's addresses."""
    given = value if isinstance(value, dict) else {"name": value}
    arguments.refuse_unknown_keys(what, given, {"name", "ip", "parameters"})
    name = given.get("name") or "clean-traffic"
    if not isinstance(name, str) or not _WORD.fullmatch(name):
        raise BadArgument(what, f"{name!r} cannot name a filter")
    parameters = [("IP", arguments.address(f"{what}: ip", one))
                  for one in arguments.names(what, given.get("ip"))]  # fmt: skip
    for key, one in (arguments.mapping(what, given.get("parameters")) or {}).items():
        parameters.append((str(key), str(one)))
    return {"name": name, "parameters": parameters}


def _virtualport(what, value):
    """Return ``{"type", "parameters"}`` from ``openvswitch`` or a mapping with parameters."""
    given = dict(value) if isinstance(value, dict) else {"type": value}
    kind = given.pop("type", None)
    if kind not in _SWITCHES:
        raise BadArgument(what, f"type {kind!r}; one of {', '.join(_SWITCHES)}")
    return {"type": kind, "parameters": {str(k): str(v) for k, v in given.items()}}


def _mode(what, value):
    if value not in _MODES:
        raise BadArgument(what, f"{value!r}; one of {', '.join(_MODES)}")
    return value


def _name(what, value):
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise BadArgument(what, f"{value!r} is no name")
    return value


def _guest(what, value):
    """Return ``{"dhcp", "addresses", "gateways", "dns", "search"}``: what the guest sets up."""
    given = {"dhcp": True} if value == "dhcp" else value
    if not isinstance(given, dict):
        raise BadArgument(what, f"{value!r}; dhcp, or {{addresses: [10.0.0.4/16], gateway: ...}}")
    known = {"dhcp", "addresses", "gateway", "dns", "search"}
    arguments.refuse_unknown_keys(what, given, known)
    addresses = arguments.interface_addresses(f"{what}: addresses", given.get("addresses")) or ()
    dhcp = arguments.boolean(f"{what}: dhcp", given.get("dhcp", not addresses))
    gateways, servers = (
        tuple(arguments.address(f"{what}: {key}", one)
              for one in arguments.names(what, given.get(key)))
        for key in ("gateway", "dns")
    )  # fmt: skip
    if gateways and not addresses:
        raise BadArgument(what, "a gateway needs addresses; DHCP brings its own")
    search = arguments.names(f"{what}: search", given.get("search"))
    return {"dhcp": dhcp, "addresses": addresses, "gateways": gateways, "dns": servers,
            "search": search}  # fmt: skip


_READERS = {
    "guest": _guest, "vlan": _vlan, "bandwidth": _bandwidth, "filter": _filter,
    "virtualport": _virtualport, "mode": _mode, "portgroup": _name,
    "queues": lambda what, value: arguments.whole(what, value, most=256),
    "mtu": lambda what, value: arguments.whole(what, value, least=68, most=65535),
}  # fmt: skip


def refuse_equal_macs(nics):
    """Refuse two NICs of one VM with the same address."""
    seen = {}
    for one in nics:
        if one.mac in seen:
            raise BadArgument(f"interface {one.name!r}", f"has the MAC {one.mac} of interface "
                              f"{seen[one.mac]!r}; give another")  # fmt: skip
        seen[one.mac] = one.name


def needs(nics):
    """
    Return what NICs need of a host: ``{"bridges", "networks", "links", "bridge_vlans"}``.

    ``links`` are those that macvtap uses, and Open vSwitch's bridges, which are no Linux bridges;
    ``bridge_vlans`` says whether a Linux bridge must tag, which libvirt can from 11.0 on.
    """
    def switched(one):
        return one.extra.get("virtualport", {}).get("type") == "openvswitch"

    plain = [one for one in nics if one.type == "bridge" and not switched(one)]
    links = [n for n in nics if n.type == "direct" or (n.type == "bridge" and switched(n))]
    return {
        "bridges": tuple(sorted({one.source for one in plain})),
        "networks": tuple(sorted({one.source for one in nics if one.type == "network"})),
        "links": tuple(sorted({one.source for one in links})),
        "bridge_vlans": any("vlan" in one.extra for one in plain),
    }
