"""What of a network must be there after a reboot, and what cannot be kept: pure functions."""

import ipaddress

from saltvirt.net.persist import Kept
from saltvirt.net.plan import BridgeRefused

_PROTO_BOOT, _PROTO_RA, _PROTO_DHCP = 3, 9, 16
_MAIN, _GLOBAL = 254, 0
_INSTEAD = "give persist=none and keep the network yourself, or change it first"


def kept(wanted, name, *, leased=(), dhcp=False, is_new_lease=False, **given):
    """
    Return what must be there of a link: a lease is kept by DHCP, the rest as it is.

    wanted
        The snapshot that the links are brought to.
    leased
        The IPv4 addresses that the host's manager renews.
    is_new_lease
        Whether DHCP was asked for in the place of what is static now.
    given
        Other fields of :class:`~saltvirt.net.persist.Kept`.
    """
    made = wanted["links"][name]
    static = [a["address"] for a in made["addresses"] if _is_static(a, leased)]
    routes = [r for r in wanted["routes"] if r["oif"] == name and _is_kept(r, dhcp)]
    gateways = [r["gateway"] for r in routes if r["dst"] == "default" and r["gateway"]]
    if is_new_lease:
        static, gateways = ([a for a in some if ":" in a] for some in (static, gateways))
    options = made["bridge"] or {}
    return Kept(
        name=name,
        dhcp=dhcp,
        addresses=tuple(static),
        gateways=tuple(gateways),
        routes=tuple((r["dst"], r["gateway"] or "") for r in routes
                     if r["dst"] != "default" and r["table"] == _MAIN),
        mtu=made["mtu"],
        mac=made["mac"],
        stp=bool(options.get("stp", 0)),
        forward_delay_s=int(options.get("forward_delay_cs", 0)) // 100,
        vlan_filtering=bool(options.get("vlan_filtering", 0)),
        ra=_is_advertised(made, [r for r in wanted["routes"] if r["oif"] == name]),
        **given,
    )  # fmt: skip


def seen(snapshot):
    """Return ``((address or destination, gateway or ""), ...)`` of all that is there."""
    addresses = [(a["address"], "") for link in snapshot["links"].values()
                 for a in link["addresses"]]  # fmt: skip
    return (*addresses, *((r["dst"], r["gateway"] or "") for r in snapshot["routes"]
                          if r["table"] == _MAIN))  # fmt: skip


def _is_static(address, leased):
    # A lease may last for ever, and is one all the same.
    text = address["address"].partition("/")[0]
    return address["valid_s"] is None and address["scope"] == _GLOBAL and text not in leased


def _is_kept(route, dhcp):
    """Return whether a route is nobody else's to make again; dhclient's look like anybody's."""
    if route["proto"] == _PROTO_RA:
        return False
    is_default4 = route["dst"] == "default" and route["family"] == 2
    return not dhcp or route["proto"] not in (
        (_PROTO_DHCP, _PROTO_BOOT) if is_default4 else (_PROTO_DHCP,))  # fmt: skip


def _is_advertised(link, routes):
    ends = [a for a in link["addresses"] if ":" in a["address"] and a["valid_s"] is not None
            and a["scope"] == _GLOBAL]  # fmt: skip
    return bool(ends or [r for r in routes if r["proto"] == _PROTO_RA])


def refuse_unkeepable(wanted, name, dhcp):
    """Raise BridgeRefused for what would not be there after a reboot as it is now."""
    routes = [r for r in wanted["routes"] if r["oif"] == name and _is_kept(r, dhcp)]
    nets = [ipaddress.ip_interface(a["address"]).network
            for a in wanted["links"][name]["addresses"]]  # fmt: skip
    # A gateway may be reached by a route of its own, which is kept as well.
    nets += [ipaddress.ip_network(r["dst"]) for r in routes
             if not r["gateway"] and r["dst"] != "default" and r["table"] == _MAIN]  # fmt: skip
    for route in routes:
        why = _unkeepable(route, nets)
        if why:
            raise BridgeRefused(f"the route {_named(route)} {why}, which cannot be kept over a "
                                f"reboot: {_INSTEAD}")  # fmt: skip
    for family, title in ((2, "IPv4"), (10, "IPv6")):
        some = [_named(r) for r in routes if r["dst"] == "default" and r["family"] == family]
        if len(some) > 1:
            raise BridgeRefused(f"there are {len(some)} default routes of {title} "
                                f"({', '.join(some)}), and one is kept over a reboot: give gateway "
                                "of the one that shall stay")  # fmt: skip


def _named(route):
    return route["dst"] + (f" via {route['gateway']}" if route["gateway"] else "")


def _unkeepable(route, nets):
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
