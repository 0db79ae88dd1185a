"""How each manager of networks keeps a bridge over a reboot: text from plain data."""

import re
import uuid
from dataclasses import dataclass

import yaml

_SPACE = uuid.UUID("8d0c6a52-5f36-4ac5-9a65-1c5d5a7c7d0e")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What must be there after a reboot."""

    name: str
    ports: tuple[str, ...]
    dhcp: bool
    addresses: tuple[str, ...]
    gateways: tuple[str, ...]
    routes: tuple[tuple[str, str], ...]
    dns: tuple[str, ...]
    mtu: int
    mac: str
    stp: bool
    forward_delay_s: int
    vlan_filtering: bool
    vlans: tuple[int, ...] = ()
    client_id: str | None = None


def _yes(value):
    return "yes" if value else "no"


def _spans(vlans):
    """Return VLANs as ``[(first, last)]``."""
    out = []
    for vid in sorted(vlans):
        if out and vid == out[-1][1] + 1:
            out[-1] = (out[-1][0], vid)
        else:
            out.append((vid, vid))
    return [str(a) if a == b else f"{a}-{b}" for a, b in out]


def _ini(*sections):
    """Return sections ``(title, [(key, value)])`` as text; empty ones are left out."""
    blocks = ["\n".join([f"[{title}]", *(f"{key}={value}" for key, value in pairs)])
              for title, pairs in sections if pairs]  # fmt: skip
    return "\n\n".join(blocks) + "\n"


_DUIDS = {1: "link-layer-time", 2: "vendor", 3: "link-layer", 4: "uuid"}


def _colons(text):
    return ":".join(text[at : at + 2] for at in range(0, len(text), 2))


def _client(kept):
    """Return networkd's words for the client that the port was: the server knows it by these."""
    if not kept.dhcp:
        return []
    # A lease that is given back when the bridge goes may be somebody else's when its port asks.
    return [("SendRelease", "no"), *_client_id(kept)]


def _client_id(kept):
    known = kept.client_id or ""
    if known == "01" + kept.mac.replace(":", ""):
        return [("ClientIdentifier", "mac")]
    # RFC 4361: ff, four bytes that tell the host's links apart, two bytes of a kind, the DUID.
    if known.startswith("ff") and len(known) > 14 and int(known[10:14], 16) in _DUIDS:
        return [("ClientIdentifier", "duid"), ("IAID", int(known[2:10], 16)),
                ("DUIDType", _DUIDS[int(known[10:14], 16)]),
                ("DUIDRawData", _colons(known[14:]))]  # fmt: skip
    return []


def networkd(kept):
    """Return the files of systemd-networkd; their names sort before those of the distribution."""
    base = "/etc/systemd/network/05-salt-virt"
    name = kept.name
    device = _ini(
        ("NetDev", [("Name", name), ("Kind", "bridge"), ("MACAddress", kept.mac),
                    ("MTUBytes", kept.mtu)]),
        ("Bridge", [("STP", _yes(kept.stp)), ("ForwardDelaySec", kept.forward_delay_s),
                    ("VLANFiltering", _yes(kept.vlan_filtering))]),
    )  # fmt: skip
    network = [("DHCP", _yes(kept.dhcp))]
    network += [("Address", a) for a in kept.addresses]
    network += [("Gateway", g) for g in kept.gateways] + [("DNS", d) for d in kept.dns]
    routes = [("Route", [("Destination", dst), ("Gateway", via)]) for dst, via in kept.routes]
    files = {
        f"{base}-{name}.netdev": device,
        f"{base}-{name}.network": _ini(
            ("Match", [("Name", name)]),
            ("Network", network),
            ("DHCPv4", _client(kept)),
            *routes,
        ),
    }
    vlans = [("BridgeVLAN", [("VLAN", span)]) for span in _spans(kept.vlans)]
    for port in kept.ports:
        files[f"{base}-{name}-{port}.network"] = _ini(
            ("Match", [("Name", port)]), ("Network", [("Bridge", name)]), *vlans
        )
    return files


def _keyfile_ip(kept, family):
    mine = [a for a in kept.addresses if (":" in a) == (family == 6)]
    routes = [(dst, via) for dst, via in kept.routes if (":" in dst) == (family == 6)]
    extra = [(f"route{n}", f"{dst},{via}") for n, (dst, via) in enumerate(routes, 1)]
    if kept.dhcp and family == 4:
        client = [("dhcp-client-id", _colons(kept.client_id))] if kept.client_id else []
        return [("method", "auto"), *client, *extra]
    if kept.dhcp or (family == 6 and not mine):
        return [("method", "auto"), *extra]
    if not mine:
        return [("method", "disabled")]
    pairs = [("method", "manual")]
    pairs += [(f"address{n}", a) for n, a in enumerate(mine, 1)]
    pairs += [("gateway", g) for g in kept.gateways if (":" in g) == (family == 6)]
    pairs += extra
    dns = [d for d in kept.dns if (":" in d) == (family == 6)]
    return [*pairs, *([("dns", "".join(f"{d};" for d in dns))] if dns else [])]


def networkmanager(kept):
    """Return the keyfiles of NetworkManager; they come before the port's own connections."""
    base, name = "/etc/NetworkManager/system-connections", f"salt-virt-{kept.name}"
    top = [("autoconnect", "true"), ("autoconnect-priority", "100")]
    bridge = [("stp", str(kept.stp).lower()), ("mac-address", kept.mac)]
    if kept.stp:
        bridge.append(("forward-delay", max(2, kept.forward_delay_s)))
    if kept.vlan_filtering:
        bridge.append(("vlan-filtering", "true"))
    files = {f"{base}/{name}.nmconnection": _ini(
        ("connection", [("id", name), ("uuid", uuid.uuid5(_SPACE, name)), ("type", "bridge"),
                        ("interface-name", kept.name), *top]),
        ("ethernet", [("mtu", kept.mtu)]),
        ("bridge", bridge),
        ("ipv4", _keyfile_ip(kept, 4)),
        ("ipv6", _keyfile_ip(kept, 6)),
    )}  # fmt: skip
    vlans = [("vlans", ", ".join(_spans(kept.vlans)))] if kept.vlans else []
    for port in kept.ports:
        own = f"{name}-{port}"
        files[f"{base}/{own}.nmconnection"] = _ini(
            ("connection", [("id", own), ("uuid", uuid.uuid5(_SPACE, own)), ("type", "ethernet"),
                            ("interface-name", port), ("master", kept.name),
                            ("slave-type", "bridge"), *top]),
            ("ethernet", [("mtu", kept.mtu)]),
            ("bridge-port", vlans),
        )  # fmt: skip
    return files


NETPLAN_KEYS = ("addresses", "dhcp4", "dhcp6", "dhcp4-overrides", "dhcp6-overrides", "gateway4",
                "gateway6", "nameservers", "routes", "accept-ra")  # fmt: skip


def netplan(kept):
    """Return the file of netplan for a bridge; see :func:`netplan_freed` for its ports."""
    bridge = {
        "interfaces": list(kept.ports),
        "macaddress": kept.mac,
        "mtu": kept.mtu,
        "dhcp4": kept.dhcp,
        "parameters": {"stp": kept.stp, "forward-delay": kept.forward_delay_s},
    }
    routes = [{"to": "default", "via": gateway} for gateway in kept.gateways]
    routes += [{"to": dst, "via": via} for dst, via in kept.routes]
    for key, value in (("addresses", list(kept.addresses)), ("routes", routes)):
        if value:
            bridge[key] = value
    if kept.dns:
        bridge["nameservers"] = {"addresses": list(kept.dns)}
    ports = {port: {"dhcp4": False, "dhcp6": False} for port in kept.ports}
    network = {"version": 2, "ethernets": ports, "bridges": {kept.name: bridge}}
    path = f"/etc/netplan/90-salt-virt-{kept.name}.yaml"
    files = {path: yaml.safe_dump({"network": network}, sort_keys=True)}
    if client := _client(kept):
        # netplan has no word for it, networkd reads it beside what netplan writes.
        path = f"/etc/systemd/network/10-netplan-{kept.name}.network.d/salt-virt.conf"
        files[path] = _ini(("DHCPv4", client))
    return files


def netplan_freed(text, ports):
    """
    Return another file of netplan without the addresses of the ports, None if it has none.

    netplan joins the lists of all its files, so what one of them gives a port cannot be taken away
    by another.
    """
    data = yaml.safe_load(text) or {}
    network, changed = data.get("network") or {}, False
    for kind in ("ethernets", "bonds", "vlans"):
        for port in ports:
            own = (network.get(kind) or {}).get(port) or {}
            for key in NETPLAN_KEYS:
                if key in own and own[key] not in (False, []):
                    del own[key]
                    changed = True
    return yaml.safe_dump(data, sort_keys=True) if changed else None


def netplan_renderer(texts):
    """Return who netplan's files are for, ``networkd`` or ``NetworkManager``; the last one says."""
    found = "networkd"
    for text in texts:
        found = ((yaml.safe_load(text) or {}).get("network") or {}).get("renderer", found)
    return found


def ifupdown(kept):
    """Return the calls of Salt's ``ip.build_interface``: ``[(name, kind, settings)]``."""
    bridge = {
        **_interface(kept),
        "ports": " ".join(kept.ports),
        "stp": "on" if kept.stp else "off",
        "fd": kept.forward_delay_s,
        "hwaddress": kept.mac,
        "mtu": kept.mtu,
    }
    manual = {"proto": "manual", "enable_ipv6": False}
    return [*[(port, "eth", manual) for port in kept.ports], (kept.name, "bridge", bridge)]


def ifupdown_heir(kept):
    """Return the call that gives a port what its bridge had."""
    return kept.name, "eth", _interface(kept)


def _interface(kept):
    settings = {
        "proto": "dhcp" if kept.dhcp else ("static" if kept.addresses else "manual"),
        "enable_ipv6": False,
    }
    version4 = [a for a in kept.addresses if ":" not in a]
    if version4 and not kept.dhcp:
        settings["ipaddr"], _slash, settings["netmask"] = version4[0].partition("/")
        gateways = [g for g in kept.gateways if ":" not in g]
        settings |= {"gateway": gateways[0]} if gateways else {}
    extra = [f"ip address replace {a} dev {kept.name}" for a in [*version4[1:],
             *(a for a in kept.addresses if ":" in a)] if not kept.dhcp]  # fmt: skip
    extra += [f"ip route replace {dst} via {via}" for dst, via in kept.routes]
    extra += [f"ip -6 route replace default via {g}" for g in kept.gateways if ":" in g]
    if extra:
        settings["up_cmds"] = extra
    if kept.dns:
        settings["dns"] = list(kept.dns)
    return settings


_STANZA = ("auto", "iface", "allow-", "mapping", "source", "no-auto-down", "no-scripts")


def ifupdown_without(text, name):
    """Return /etc/network/interfaces without the stanzas of one interface."""
    out, is_ours = [], False
    for line in text.splitlines():
        words = line.split()
        if words and words[0].startswith(_STANZA):
            is_ours = name in words[1:2]
        if not is_ours:
            out.append(line)
    return "\n".join(out) + "\n"


def ifupdown_names(text):
    """Return the names of the interfaces that have a stanza in a file of ifupdown's."""
    return set(re.findall(r"^\s*iface\s+(\S+)", text, re.MULTILINE))


def ifupdown_is_leased(text, name):
    """Return whether a file of ifupdown's gives an interface its IPv4 address by DHCP."""
    return bool(re.search(rf"^\s*iface\s+{re.escape(name)}\s+inet\s+dhcp\b", text, re.MULTILINE))
