"""The configuration that a link needs after a reboot, and what cannot persist: pure functions."""

import ipaddress
from collections.abc import Collection, Iterable
from typing import Any

from saltvirt.network.bridge.bridgeplan import BridgeRefused
from saltvirt.network.bridge.snapshot import Address, Link, Route, Snapshot
from saltvirt.network.managers.linkconfig import LinkConfig

_PROTO_BOOT, _PROTO_RA, _PROTO_DHCP = 3, 9, 16
_MAIN, _GLOBAL = 254, 0
_INSTEAD = "give persist=none and keep the network yourself, or change it first"
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def link_config(
    snapshot: Snapshot,
    name: str,
    *,
    leased: Collection[str] = (),
    dhcp: bool = False,
    is_new_lease: bool = False,
    **fields: Any,
) -> LinkConfig:
    """
    Return the persistent configuration of a link: leased addresses become DHCP, others static.

    snapshot
        The target snapshot.
    leased
        The IPv4 addresses that the host's network manager renews.
    is_new_lease
        Whether DHCP replaces the present static IPv4 addresses.
    fields
        Other fields of :class:`~saltvirt.network.managers.linkconfig.LinkConfig`.
    """
    link = snapshot["links"][name]
    link_routes = [r for r in snapshot["routes"] if r["oif"] == name]
    static_addresses = [a["address"] for a in link["addresses"] if _is_static(a, leased)]
    routes = [r for r in link_routes if _is_persistent(r, dhcp)]
    gateways = _gateways(routes)
    if is_new_lease:
        static_addresses, gateways = _filter_ipv6(static_addresses), _filter_ipv6(gateways)
    return LinkConfig(
        name=name,
        dhcp=dhcp,
        addresses=tuple(static_addresses),
        gateways=tuple(gateways),
        routes=_destinations(r for r in routes if r["dst"] != "default"),
        ra=_is_advertised(link, link_routes),
        **_properties(link),
        **fields,
    )


def _gateways(routes: Iterable[Route]) -> list[str]:
    return [r["gateway"] for r in routes if r["dst"] == "default" and r["gateway"]]


def _properties(link: Link) -> dict[str, Any]:
    """Return the fields of a link that do not depend on its addresses."""
    options = link["bridge"] or {}
    return {
        "mtu": link["mtu"],
        "mac": link["mac"],
        "stp": bool(options.get("stp", 0)),
        "forward_delay_s": int(options.get("forward_delay_cs", 0)) // 100,
        "vlan_filtering": bool(options.get("vlan_filtering", 0)),
    }


def _filter_ipv6(texts: Iterable[str]) -> list[str]:
    return [text for text in texts if ":" in text]


def _destinations(routes: Iterable[Route]) -> tuple[tuple[str, str], ...]:
    """Return ``((destination, gateway or ""), ...)`` of the routes of the main table."""
    return tuple(_hop(route) for route in routes if route["table"] == _MAIN)


def _hop(route: Route) -> tuple[str, str]:
    return route["dst"], route["gateway"] or ""


def list_destinations(snapshot: Snapshot) -> tuple[tuple[str, str], ...]:
    """Return ``((address or destination, gateway or ""), ...)`` of all links and routes."""
    links = snapshot["links"].values()
    addresses = ((a["address"], "") for link in links for a in link["addresses"])
    return (*addresses, *_destinations(snapshot["routes"]))


def _is_static(address: Address, leased_addresses: Collection[str]) -> bool:
    # A leased address may have an unlimited lifetime.
    text = address["address"].partition("/")[0]
    return (
        address["valid_s"] is None and address["scope"] == _GLOBAL and text not in leased_addresses
    )


def _is_persistent(route: Route, dhcp: bool) -> bool:
    """Return whether a route must be written; dhclient's routes have the protocol ``boot``."""
    if route["proto"] == _PROTO_RA:
        return False
    is_default4 = route["dst"] == "default" and route["family"] == 2
    return not dhcp or route["proto"] not in (
        (_PROTO_DHCP, _PROTO_BOOT) if is_default4 else (_PROTO_DHCP,)
    )


def _is_advertised(link: Link, routes: Iterable[Route]) -> bool:
    ends = [a for a in link["addresses"] if a["valid_s"] is not None and a["scope"] == _GLOBAL]
    is_addressed = any(":" in a["address"] for a in ends)
    return is_addressed or any(r["proto"] == _PROTO_RA for r in routes)


def refuse_unpersistable(snapshot: Snapshot, name: str, dhcp: bool) -> None:
    """Raise BridgeRefused for routes that cannot be kept over a reboot."""
    routes = [r for r in snapshot["routes"] if r["oif"] == name and _is_persistent(r, dhcp)]
    nets = _gateway_networks(snapshot["links"][name]["addresses"], routes)
    for route in routes:
        reason = _unpersistable(route, nets)
        if reason:
            raise BridgeRefused(
                f"the route {_route_text(route)} {reason}, which cannot be kept over a reboot: "
                f"{_INSTEAD}"
            )
    defaults = [r for r in routes if r["dst"] == "default"]
    _refuse_several("IPv4", [_route_text(r) for r in defaults if r["family"] == 2])
    _refuse_several("IPv6", [_route_text(r) for r in defaults if r["family"] == 10])


def _gateway_networks(addresses: Iterable[Address], routes: Iterable[Route]) -> list[_Network]:
    """Return the networks in which gateways are reachable."""
    # A gateway may be reached by a host route of its own, which is kept as well.
    direct = [dst for dst, via in _destinations(routes) if not via and dst != "default"]
    return [
        *(ipaddress.ip_interface(a["address"]).network for a in addresses),
        *(ipaddress.ip_network(dst) for dst in direct),
    ]


def _refuse_several(family: str, defaults: list[str]) -> None:
    if len(defaults) > 1:
        raise BridgeRefused(
            f"there are {len(defaults)} default routes of {family} "
            f"({', '.join(defaults)}), and only one can be kept over a reboot: give "
            "the gateway of the one to keep"
        )


def _route_text(route: Route) -> str:
    return route["dst"] + (f" via {route['gateway']}" if route["gateway"] else "")


def _unpersistable(route: Route, nets: Iterable[_Network]) -> str | None:
    """Return why a route cannot be kept, or None."""
    if route["table"] != _MAIN:
        return f"is in table {route['table']}"
    if route.get("metrics"):
        return f"has metrics ({', '.join(map(str, route['metrics']))})"
    if not route["gateway"]:
        return "has no gateway" if route["dst"] == "default" else None
    gateway = ipaddress.ip_address(route["gateway"])
    if not gateway.is_link_local and not any(gateway in net for net in nets):
        return "has its gateway outside the subnet of every address and route on the link"
    return None
