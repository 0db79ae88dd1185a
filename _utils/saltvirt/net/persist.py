"""How each manager of networks keeps a bridge over a reboot: text from plain data."""

import uuid
from dataclasses import dataclass

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
    search: tuple[str, ...] = ()
    # Whether the name servers were asked for, rather than found.
    is_dns_asked: bool = False
    # Whether a router's advertisements say more than the addresses do.
    ra: bool = False
    # What is there before: ``(address or destination, gateway or "")``.
    seen: tuple[tuple[str, str], ...] = ()


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


def client_section(kept):
    """Return the section of networkd's by which the server knows the bridge, "" without DHCP."""
    client = _client(kept)
    return _ini(("DHCPv4", client)) if client else ""


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
    network += [("Domains", " ".join(kept.search))] if kept.search else []
    network += [("IPv6AcceptRA", "yes")] if kept.ra else []
    routes = [("Route", [("Destination", dst), *([("Gateway", via)] if via else [])])
              for dst, via in kept.routes]  # fmt: skip
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
    mine, gateways, dns = (
        [one for one in some if (":" in one) == (family == 6)]
        for some in (kept.addresses, kept.gateways, kept.dns)
    )
    routes = [(dst, via) for dst, via in kept.routes if (":" in dst) == (family == 6)]
    if not mine:
        # NetworkManager gives a gateway to those that have an address.
        routes += [("::/0" if family == 6 else "0.0.0.0/0", g) for g in gateways]
    is_asking = kept.dhcp or (family == 6 and (kept.ra or not mine))
    if not (is_asking or mine):
        return [("method", "disabled")]
    pairs = [("method", "auto" if is_asking else "manual")]
    if kept.dhcp and family == 4 and kept.client_id:
        pairs.append(("dhcp-client-id", _colons(kept.client_id)))
    pairs += [(f"address{n}", a) for n, a in enumerate(mine, 1)]
    pairs += [("gateway", g) for g in gateways if mine]
    pairs += [(f"route{n}", f"{dst},{via}" if via else dst)
              for n, (dst, via) in enumerate(routes, 1)]  # fmt: skip
    search = kept.search if family == 4 or not _has(kept, 4) else ()
    pairs += [("dns", "".join(f"{d};" for d in dns))] if dns else []
    return pairs + ([("dns-search", "".join(f"{d};" for d in search))] if search else [])


def _has(kept, family):
    return kept.dhcp or any((":" in a) == (family == 6) for a in kept.addresses)


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
