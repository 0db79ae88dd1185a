"""Text of the files by which each network manager keeps a bridge, from plain data."""

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Sections of keys and their values.
_Pairs = list[tuple[str, Any]]
_SPACE = uuid.UUID("8d0c6a52-5f36-4ac5-9a65-1c5d5a7c7d0e")


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkConfig:
    """The configuration of a link after a reboot."""

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
    # Whether the state names the name servers, rather than this host's resolver.
    is_dns_asked: bool = False
    # Whether the link accepts router advertisements beside its static addresses.
    ra: bool = False
    # Present routes and addresses: ``(address or destination, gateway or "")``.
    seen: tuple[tuple[str, str], ...] = ()


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _spans(vlans: Iterable[int]) -> list[str]:
    """Return VLANs as numbers and ranges, ``10-12``."""
    out: list[tuple[int, int]] = []
    for vid in sorted(vlans):
        if out and vid == out[-1][1] + 1:
            out[-1] = (out[-1][0], vid)
        else:
            out.append((vid, vid))
    return [str(a) if a == b else f"{a}-{b}" for a, b in out]


def _ini(*sections: tuple[str, _Pairs]) -> str:
    """Return sections ``(title, [(key, value)])`` as text; empty ones are left out."""
    blocks = [
        "\n".join([f"[{title}]", *(f"{key}={value}" for key, value in pairs)])
        for title, pairs in sections
        if pairs
    ]
    return "\n\n".join(blocks) + "\n"


_DUIDS = {1: "link-layer-time", 2: "vendor", 3: "link-layer", 4: "uuid"}


def _colons(text: str) -> str:
    return ":".join(text[at : at + 2] for at in range(0, len(text), 2))


def _client(config: LinkConfig, options: Iterable[tuple[str, Any]] = ()) -> _Pairs:
    """Return networkd's options for the port's DHCP client identity, which the server knows."""
    if not config.dhcp:
        return []
    # Keep the lease when the bridge goes: the server could give a released one to another host.
    return [("SendRelease", "no"), *_client_id(config), *options]


def client_section(config: LinkConfig) -> str:
    """Return networkd's section with the bridge's DHCP client identity, "" without DHCP."""
    client = _client(config)
    return _ini(("DHCPv4", client)) if client else ""


def _client_id(config: LinkConfig) -> _Pairs:
    client_id = config.client_id or ""
    if client_id == "01" + config.mac.replace(":", ""):
        return [("ClientIdentifier", "mac")]
    # RFC 4361: ff, the IAID (4 bytes), the type (2 bytes), the DUID.
    if client_id.startswith("ff") and len(client_id) > 14 and int(client_id[10:14], 16) in _DUIDS:
        return [
            ("ClientIdentifier", "duid"),
            ("IAID", int(client_id[2:10], 16)),
            ("DUIDType", _DUIDS[int(client_id[10:14], 16)]),
            ("DUIDRawData", _colons(client_id[14:])),
        ]
    return []


def networkd(
    config: LinkConfig,
    stacked: Mapping[str, _Pairs] | None = None,
    of_lease: Iterable[tuple[str, Any]] = (),
) -> dict[str, str]:
    """
    Return the files of systemd-networkd, with names that sort before the distribution's.

    stacked
        ``{link: [(key, value)]}`` of stacked links in a link's former file, such as VLANs.
    of_lease
        The lease settings of those files.
    """
    settings_by_link = stacked or {}
    base = "/etc/systemd/network/05-salt-virt"
    name = config.name
    device = _ini(
        (
            "NetDev",
            [
                ("Name", name),
                ("Kind", "bridge"),
                ("MACAddress", config.mac),
                ("MTUBytes", config.mtu),
            ],
        ),
        (
            "Bridge",
            [
                ("STP", _yes(config.stp)),
                ("ForwardDelaySec", config.forward_delay_s),
                ("VLANFiltering", _yes(config.vlan_filtering)),
            ],
        ),
    )
    network: _Pairs = [("DHCP", _yes(config.dhcp))]
    network += [("Address", a) for a in config.addresses]
    network += [("Gateway", g) for g in config.gateways] + [("DNS", d) for d in config.dns]
    network += [("Domains", " ".join(config.search))] if config.search else []
    network += [("IPv6AcceptRA", "yes")] if config.ra else []
    network += settings_by_link.get(name, [])
    routes: list[tuple[str, _Pairs]] = [
        ("Route", [("Destination", dst), *([("Gateway", via)] if via else [])])
        for dst, via in config.routes
    ]
    files = {
        f"{base}-{name}.netdev": device,
        f"{base}-{name}.network": _ini(
            ("Match", [("Name", name)]),
            ("Network", network),
            ("DHCPv4", _client(config, of_lease)),
            *routes,
        ),
    }
    vlans: list[tuple[str, _Pairs]] = [
        ("BridgeVLAN", [("VLAN", span)]) for span in _spans(config.vlans)
    ]
    for port in config.ports:
        files[f"{base}-{name}-{port}.network"] = _ini(
            ("Match", [("Name", port)]),
            ("Network", [("Bridge", name), *settings_by_link.get(port, [])]),
            *vlans,
        )
    return files


def _keyfile_ip(config: LinkConfig, family: int) -> _Pairs:
    """Return the section ``ipv4`` or ``ipv6`` of a keyfile."""
    addresses, dns = _filter_family(family, config.addresses), _filter_family(family, config.dns)
    gateways = _filter_family(family, config.gateways) if addresses else []
    is_asking = _is_asking(config, family, bool(addresses))
    if not (is_asking or addresses):
        return [("method", "disabled")]
    routes = [f"{dst},{via}" if via else dst for dst, via in _keyfile_routes(config, family)]
    search = config.search if family == 4 or not _has_addresses(config, 4) else ()
    return [
        ("method", "auto" if is_asking else "manual"),
        *_keyfile_client(config, family),
        *((f"address{number}", address) for number, address in enumerate(addresses, 1)),
        *(("gateway", gateway) for gateway in gateways),
        *((f"route{number}", route) for number, route in enumerate(routes, 1)),
        *_keyfile_list("dns", dns),
        *_keyfile_list("dns-search", search),
    ]


def _family(address: str) -> int:
    return 6 if ":" in address else 4


def _filter_family(family: int, addresses: Iterable[str]) -> list[str]:
    return [address for address in addresses if _family(address) == family]


def _is_asking(config: LinkConfig, family: int, is_addressed: bool) -> bool:
    """Return whether a family's addresses come from DHCP or, for IPv6, from routers."""
    return config.dhcp or (family == 6 and (config.ra or not is_addressed))


def _keyfile_routes(config: LinkConfig, family: int) -> list[tuple[str, str]]:
    routes = [(dst, via) for dst, via in config.routes if _family(dst) == family]
    if _is_static(config, family):
        return routes
    # NetworkManager takes a gateway only together with an address: write it as a route.
    default_destination = "::/0" if family == 6 else "0.0.0.0/0"
    return routes + [
        (default_destination, gateway) for gateway in _filter_family(family, config.gateways)
    ]


def _keyfile_client(config: LinkConfig, family: int) -> _Pairs:
    if config.dhcp and family == 4 and config.client_id:
        return [("dhcp-client-id", _colons(config.client_id))]
    return []


def _keyfile_list(key: str, values: Collection[str]) -> _Pairs:
    return [(key, "".join(f"{value};" for value in values))] if values else []


def _is_static(config: LinkConfig, family: int) -> bool:
    return any(_family(address) == family for address in config.addresses)


def _has_addresses(config: LinkConfig, family: int) -> bool:
    return config.dhcp or _is_static(config, family)


def networkmanager(config: LinkConfig) -> dict[str, str]:
    """Return the keyfiles of NetworkManager, with priority over the port's own connections."""
    base, name = "/etc/NetworkManager/system-connections", f"salt-virt-{config.name}"
    top: _Pairs = [("autoconnect", "true"), ("autoconnect-priority", "100")]
    bridge: _Pairs = [("stp", str(config.stp).lower()), ("mac-address", config.mac)]
    if config.stp:
        bridge.append(("forward-delay", max(2, config.forward_delay_s)))
    if config.vlan_filtering:
        bridge.append(("vlan-filtering", "true"))
    files = {
        f"{base}/{name}.nmconnection": _ini(
            (
                "connection",
                [
                    ("id", name),
                    ("uuid", uuid.uuid5(_SPACE, name)),
                    ("type", "bridge"),
                    ("interface-name", config.name),
                    *top,
                ],
            ),
            ("ethernet", [("mtu", config.mtu)]),
            ("bridge", bridge),
            ("ipv4", _keyfile_ip(config, 4)),
            ("ipv6", _keyfile_ip(config, 6)),
        )
    }
    vlans: _Pairs = [("vlans", ", ".join(_spans(config.vlans)))] if config.vlans else []
    for port in config.ports:
        port_name = f"{name}-{port}"
        files[f"{base}/{port_name}.nmconnection"] = _ini(
            (
                "connection",
                [
                    ("id", port_name),
                    ("uuid", uuid.uuid5(_SPACE, port_name)),
                    ("type", "ethernet"),
                    ("interface-name", port),
                    ("master", config.name),
                    ("slave-type", "bridge"),
                    *top,
                ],
            ),
            ("ethernet", [("mtu", config.mtu)]),
            ("bridge-port", vlans),
        )
    return files
