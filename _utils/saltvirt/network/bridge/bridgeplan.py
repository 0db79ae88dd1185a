"""Plan the changes that a bridge needs: pure functions over a snapshot of the links involved."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from saltvirt.core.errors import BadArgument, VirtError
from saltvirt.network.bridge.snapshot import LINK_LOCAL, Address, Link, Route, Snapshot

# ``(verb, link, argument)``, as :data:`saltvirt.network.bridge.links` carries them out.
Step = tuple[str, str, Any]
MAX_NAME = 15


class BridgeRefused(VirtError):
    """The bridge cannot be made as requested; nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge:
    """A requested bridge; fields that are None stay unchanged."""

    name: str
    ports: tuple[str, ...]
    addresses: tuple[str, ...] | None = None
    gateway: str | None = None
    mtu: int | None = None
    options: dict[str, int] = field(default_factory=dict)
    vlans: tuple[int, ...] = ()


def refuse_impossible(snapshot: Snapshot, bridge: Bridge, link_names: Iterable[str]) -> None:
    """Raise BridgeRefused if a link cannot become a port; ``link_names`` are all links."""
    old_link = snapshot["links"].get(bridge.name)
    if old_link and old_link["kind"] != "bridge":
        raise BridgeRefused(f"{bridge.name!r} exists and is not a bridge; choose another name")
    for port in bridge.ports:
        _refuse_port(snapshot["links"].get(port), port, bridge.name, link_names)
    refuse_unmovable(snapshot)


def refuse_unmovable(snapshot: Snapshot) -> None:
    """Raise BridgeRefused if an address or a route cannot move to another link."""
    for route in snapshot["routes"]:
        if route["is_multipath"]:
            raise BridgeRefused(
                f"the route {route['dst']} has several next hops, which are not "
                "moved; make it a simple one first"
            )
        if route.get("strange"):
            raise BridgeRefused(
                f"the route {route['dst']} has {route['strange']}, which is not "
                "moved; make it a simple one first"
            )
    for name, link in snapshot["links"].items():
        for address in link["addresses"]:
            if address.get("peer") and _is_movable(address):
                raise BridgeRefused(
                    f"{address['address']} of {name} has a peer ({address['peer']}), which "
                    "is not moved; make it an ordinary address first"
                )


def refuse_displacing(gateway: str, other_routes: Iterable[Route]) -> None:
    """
    Raise BridgeRefused if a gateway would replace a default route over another link.

    The kernel has one default route for each metric; the rollback covers only the links involved.
    """
    family, metric = (10, 1024) if ":" in gateway else (2, 0)
    for route in other_routes:
        is_main = route["dst"] == "default" and route["table"] == 254
        if is_main and route["family"] == family and (route["priority"] or metric) == metric:
            via = f" via {route['gateway']}" if route["gateway"] else ""
            raise BridgeRefused(
                f"the default route{via} over {route['oif']} would be lost to the gateway "
                f"{gateway}: leave that out, or take the other away first"
            )


def _refuse_port(link: Link | None, port: str, bridge: str, link_names: Iterable[str]) -> None:
    if link is None:
        raise BadArgument(
            "ports", f"no link {port!r} on this host; there are: {', '.join(sorted(link_names))}"
        )
    if link["kind"] == "bridge":
        raise BridgeRefused(f"{port!r} is a bridge itself; a bridge cannot be a port")
    if link["master"] not in (None, bridge):
        raise BridgeRefused(f"{port!r} is a port of {link['master']} already; take it out first")


def _is_movable(address: Address) -> bool:
    return address["scope"] != LINK_LOCAL


def _static(text: str) -> Address:
    return {"address": text, "broadcast": None, "scope": 0, "valid_s": None}


def _lasting(address: Address) -> tuple[str, bool]:
    return address["address"], address["valid_s"] is None


_USUAL_MTU = 1500
_NEW: Link = {
    "kind": None,
    "master": None,
    "up": False,
    "addresses": [],
    "mac": None,
    "mtu": None,
    "bridge": {},
    "vlans": [],
}


def target(snapshot: Snapshot, bridge: Bridge) -> Snapshot:
    """Return the target snapshot, in which the bridge has the addresses and routes of its ports."""
    links = {bridge.name: _bridge_link(snapshot, bridge)}
    links |= {port: _port_link(snapshot["links"][port], bridge) for port in bridge.ports}
    routes = [_rerouted(route, bridge.ports, bridge.name) for route in snapshot["routes"]]
    lost_addresses = _texts(snapshot["links"]) - _texts(links)
    # The kernel refuses a route with a source address that no link has.
    routes = [{**r, "prefsrc": None} if r["prefsrc"] in lost_addresses else r for r in routes]
    return {"links": links, "routes": _with_gateway(routes, bridge)}


def _texts(links: dict[str, Link]) -> set[str | None]:
    """Return the addresses of links, without prefixes."""
    addresses = (address["address"] for link in links.values() for address in link["addresses"])
    return {text.partition("/")[0] for text in addresses}


def _bridge_link(snapshot: Snapshot, bridge: Bridge) -> Link:
    links = snapshot["links"]
    old_link = links.get(bridge.name, _NEW)
    first_port = links[bridge.ports[0]] if bridge.ports else _NEW
    return {
        "kind": "bridge",
        "master": None,
        "up": True,
        "mtu": bridge.mtu or old_link["mtu"] or first_port["mtu"] or _USUAL_MTU,
        "addresses": _bridge_addresses(links, bridge),
        "mac": old_link["mac"] or first_port["mac"],
        "bridge": {**(old_link["bridge"] or {}), **bridge.options},
        "vlans": old_link["vlans"],
    }


def _bridge_addresses(links: dict[str, Link], bridge: Bridge) -> list[Address]:
    old_addresses = [
        a
        for name in (bridge.name, *bridge.ports)
        for a in _addresses(links, name)
        if _is_movable(a)
    ]
    if bridge.addresses is None:
        return old_addresses
    by_text = {a["address"]: a for a in old_addresses}
    # An address by router advertisement comes back with the next advertisement.
    router_addresses = [
        a for a in old_addresses if ":" in a["address"] and a["valid_s"] is not None
    ]
    router_addresses = [a for a in router_addresses if a["address"] not in bridge.addresses]
    # Requested addresses are static: no DHCP client renews them.
    static_addresses: list[Address] = [
        {**by_text.get(text, _static(text)), "valid_s": None} for text in bridge.addresses
    ]
    return [*static_addresses, *router_addresses]


def _port_link(link: Link, bridge: Bridge) -> Link:
    return {
        **link,
        "master": bridge.name,
        "up": True,
        "addresses": [a for a in link["addresses"] if not _is_movable(a)],
        "mtu": bridge.mtu or link["mtu"],
        "vlans": sorted({*link["vlans"], *bridge.vlans}),
    }


def _rerouted(route: Route, links: Collection[str], heir: str | None) -> Route:
    """Return a route over one of these links as a route over ``heir``."""
    return {**route, "oif": heir} if route["oif"] in links else route


def _with_gateway(routes: list[Route], bridge: Bridge) -> list[Route]:
    if bridge.gateway is None:
        return routes
    family = 10 if ":" in bridge.gateway else 2
    defaults = [r for r in routes if r["dst"] == "default" and r["family"] == family]
    present_routes = [r for r in defaults if r["gateway"] == bridge.gateway]
    gateway_route: Route = {
        "family": family,
        "dst": "default",
        "gateway": bridge.gateway,
        "oif": bridge.name,
        "table": 254,
        "priority": None,
        "prefsrc": None,
        "scope": 0,
        "proto": 4,
        "type": 1,
        "is_multipath": False,
        "is_onlink": False,
        "metrics": {},
        "strange": None,
    }
    return [*(r for r in routes if r not in defaults), *(present_routes or [gateway_route])]


def without_bridge(snapshot: Snapshot, name: str, ports: Collection[str]) -> Snapshot:
    """Return the snapshot without a bridge; a single port gets its addresses and routes."""
    links = snapshot["links"]
    out = {link_name: link for link_name, link in links.items() if link_name != name}
    for port in ports:
        # A port that has already left the bridge inherits as well, and is never removed.
        if port in links:
            out[port] = {**links[port], "master": None}
    heir = next(iter(ports)) if len(ports) == 1 else None
    if heir is not None:
        moved_addresses = [a for a in links[name]["addresses"] if _is_movable(a)]
        out[heir] = {**out[heir], "addresses": [*out[heir]["addresses"], *moved_addresses]}
    routes = [_rerouted(route, (name,), heir) for route in snapshot["routes"]]
    return {"links": out, "routes": [r for r in routes if r["oif"]]}


def operations(current: Snapshot, target_snapshot: Snapshot) -> list[Step]:
    """
    Return the steps from one snapshot to another; no address is ever on two links.

    Routes come last, because the kernel deletes routes together with their address.
    """
    old, new = current["links"], target_snapshot["links"]
    release_steps = _released(old, new)
    steps = [
        *_created(old, new),
        *_attributes(old, new),
        *_masters(old, new),
        *release_steps,
        *(("delete", name, None) for name in old if name not in new),
        *(("up", name, new[name]["up"]) for name in new if name not in old or not old[name]["up"]),
        # With the primary address of a subnet the kernel may delete the secondary ones.
        *_assigned(old, new, lost_links={name for _verb, name, _address in release_steps}),
        *_vlans(old, new),
    ]
    has_changed = any(verb not in ("vlan", "bridge") for verb, _name, _value in steps)
    return [*steps, *_routes(current, target_snapshot, has_changed)]


def _created(old: dict[str, Link], new: dict[str, Link]) -> list[Step]:
    new_links = {name: link for name, link in new.items() if name not in old}
    options: list[Step] = [
        ("bridge", name, {key: value})
        for name, link in new_links.items()
        for key, value in (link["bridge"] or {}).items()
    ]
    return [*(("create", name, link) for name, link in new_links.items()), *options]


def _masters(old: dict[str, Link], new: dict[str, Link]) -> list[Step]:
    common_names = [name for name in new if name in old]
    masters = {name: new[name]["master"] for name in common_names}
    return [("master", n, master) for n, master in masters.items() if old[n]["master"] != master]


def _addresses(links: dict[str, Link], name: str) -> list[Address]:
    return links[name]["addresses"] if name in links else []


def _released(old: dict[str, Link], new: dict[str, Link]) -> list[Step]:
    """Return the steps that remove the addresses that links lose."""
    steps: list[Step] = []
    for name, link in old.items():
        kept_addresses = {a["address"] for a in _addresses(new, name)}
        old_addresses = [
            a for a in link["addresses"] if a["address"] not in kept_addresses and _is_movable(a)
        ]
        steps += [("del_address", name, a) for a in old_addresses]
    return steps


def _assigned(
    old: dict[str, Link], new: dict[str, Link], lost_links: Collection[str]
) -> list[Step]:
    """Return the steps that add missing addresses, and all addresses of ``lost_links``."""
    steps: list[Step] = []
    for name, link in new.items():
        old_addresses = set() if name in lost_links else set(map(_lasting, _addresses(old, name)))
        new_addresses = [
            a for a in link["addresses"] if _lasting(a) not in old_addresses and _is_movable(a)
        ]
        steps += [("add_address", name, a) for a in new_addresses]
    return steps


def _vlans(old: dict[str, Link], new: dict[str, Link]) -> list[Step]:
    vlans_by_link = {name: set(link["vlans"]) for name, link in old.items()}
    return [
        ("vlan", name, vid)
        for name, link in new.items()
        for vid in link["vlans"]
        if vid not in vlans_by_link.get(name, ())
    ]


def _routes(current: Snapshot, target_snapshot: Snapshot, has_changed: bool) -> list[Step]:
    """Return the steps of the routes; all routes are added again after other changes."""
    old_routes, new_routes = current["routes"], target_snapshot["routes"]
    removed_links = set(current["links"]) - set(target_snapshot["links"])
    stale_routes = [r for r in old_routes if r not in new_routes and r["oif"] not in removed_links]
    added_routes = new_routes if has_changed else [r for r in new_routes if r not in old_routes]
    return [
        *(("del_route", _device(r), r) for r in stale_routes),
        *(("route", _device(r), r) for r in sorted(added_routes, key=_needs)),
    ]


def _device(route: Route) -> str:
    """Return the link of a route; plans have no routes without a link."""
    return route["oif"] or ""


def _needs(route: Route) -> tuple[bool, bool]:
    """Return a sort key that puts routes after those that reach their gateways."""
    return bool(route["gateway"]), route["dst"] == "default"


def _attributes(old: dict[str, Link], new: dict[str, Link]) -> list[Step]:
    steps: list[Step] = []
    for name, link in new.items():
        if name in old:
            steps += [("bridge", name, {k: v}) for k, v in _options(old[name], link).items()]
            steps += _settings(name, old[name], link)
    return steps


def _options(old: Link, new: Link) -> dict[str, int]:
    new_options, old_options = new["bridge"] or {}, old["bridge"] or {}
    # Without STP the kernel ignores the delay, which NetworkManager sets nevertheless.
    ignored_keys = () if new_options.get("stp") else ("forward_delay_cs",)
    return {
        k: v for k, v in new_options.items() if old_options.get(k) != v and k not in ignored_keys
    }


def _settings(name: str, old: Link, new: Link) -> list[Step]:
    steps: list[Step] = []
    if old["mtu"] != new["mtu"]:
        steps.append(("set", name, {"mtu": new["mtu"]}))
    if old["mac"] != new["mac"]:
        steps.append(("set", name, {"mac": new["mac"]}))
    return steps


_TEXTS: dict[str, Callable[[Any], str]] = {
    "create": lambda v: "created",
    "delete": lambda v: "removed",
    "master": lambda v: f"becomes a port of {v}" if v else "is no longer a port",
    "bridge": lambda v: ", ".join(f"{key}={value}" for key, value in sorted(v.items())),
    "set": lambda v: ", ".join(f"{key} {value}" for key, value in v.items()),
    "up": lambda v: "up",
    "add_address": lambda v: f"gets {v['address']}",
    "del_address": lambda v: f"gives up {v['address']}",
    "vlan": lambda v: f"VLAN {v}",
    "route": lambda v: f"route {v['dst']}" + (f" via {v['gateway']}" if v["gateway"] else ""),
}


def describe(steps: Iterable[Step]) -> dict[str, list[str]]:
    """Return the steps as users read them: ``{link: [text]}``."""
    out: dict[str, list[str]] = {}
    for verb, link, value in steps:
        if verb in _TEXTS:
            out.setdefault(link, []).append(_TEXTS[verb](value))
    return out
