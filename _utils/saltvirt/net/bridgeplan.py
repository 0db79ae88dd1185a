"""What a bridge needs to change: pure functions over a snapshot of the links that take part."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from saltvirt.errors import BadArgument, VirtError
from saltvirt.net.snapshot import LINK_LOCAL, Address, Link, Route, Snapshot

# ``(verb, link, argument)``, as :data:`saltvirt.net.links` carries them out.
Step = tuple[str, str, Any]
MAX_NAME = 15


class BridgeRefused(VirtError):
    """The bridge cannot be made as asked; nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridge:
    """A bridge as it was asked for; what is None stays as it is."""

    name: str
    ports: tuple[str, ...]
    addresses: tuple[str, ...] | None = None
    gateway: str | None = None
    mtu: int | None = None
    options: dict[str, int] = field(default_factory=dict)
    vlans: tuple[int, ...] = ()


def refuse_impossible(snapshot: Snapshot, bridge: Bridge, every: Iterable[str]) -> None:
    """Raise BridgeRefused if a port cannot be one; ``every`` is the names of all links."""
    there = snapshot["links"].get(bridge.name)
    if there and there["kind"] != "bridge":
        raise BridgeRefused(f"{bridge.name!r} exists and is not a bridge; choose another name")
    for port in bridge.ports:
        _refuse_port(snapshot["links"].get(port), port, bridge.name, every)
    refuse_unmovable(snapshot)


def refuse_unmovable(snapshot: Snapshot) -> None:
    """Raise BridgeRefused if an address or a route would not be the same on another link."""
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
        for one in link["addresses"]:
            if one.get("peer") and _moved(one):
                raise BridgeRefused(
                    f"{one['address']} of {name} has a peer ({one['peer']}), which "
                    "is not moved; make it an ordinary address first"
                )


def refuse_displacing(gateway: str, others: Iterable[Route]) -> None:
    """
    Raise BridgeRefused if a gateway would take the place of a default route over another link.

    The kernel has one of each metric, and the rollback knows only the links that take part.
    """
    family, metric = (10, 1024) if ":" in gateway else (2, 0)
    for route in others:
        is_main = route["dst"] == "default" and route["table"] == 254
        if is_main and route["family"] == family and (route["priority"] or metric) == metric:
            via = f" via {route['gateway']}" if route["gateway"] else ""
            raise BridgeRefused(
                f"the default route{via} over {route['oif']} would be lost to the gateway "
                f"{gateway}: leave that out, or take the other away first"
            )


def _refuse_port(link: Link | None, port: str, bridge: str, every: Iterable[str]) -> None:
    if link is None:
        raise BadArgument(
            "ports", f"no link {port!r} on this host; there are: {', '.join(sorted(every))}"
        )
    if link["kind"] == "bridge":
        raise BridgeRefused(f"{port!r} is a bridge itself; a bridge cannot be a port")
    if link["master"] not in (None, bridge):
        raise BridgeRefused(f"{port!r} is a port of {link['master']} already; take it out first")


def _moved(address: Address) -> bool:
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
    """Return the snapshot that is wanted: the ports' addresses and routes are the bridge's."""
    links = {bridge.name: _bridge_link(snapshot, bridge)}
    links |= {port: _port_link(snapshot["links"][port], bridge) for port in bridge.ports}
    routes = [_rerouted(route, bridge.ports, bridge.name) for route in snapshot["routes"]]
    lost = _texts(snapshot["links"]) - _texts(links)
    # The kernel takes no route whose source is an address that nobody has.
    routes = [{**r, "prefsrc": None} if r["prefsrc"] in lost else r for r in routes]
    return {"links": links, "routes": _with_gateway(routes, bridge)}


def _texts(links: dict[str, Link]) -> set[str | None]:
    """Return the addresses of links, without prefixes."""
    every = (one["address"] for link in links.values() for one in link["addresses"])
    return {text.partition("/")[0] for text in every}


def _bridge_link(snapshot: Snapshot, bridge: Bridge) -> Link:
    links = snapshot["links"]
    before = links.get(bridge.name, _NEW)
    first = links[bridge.ports[0]] if bridge.ports else _NEW
    return {
        "kind": "bridge",
        "master": None,
        "up": True,
        "mtu": bridge.mtu or before["mtu"] or first["mtu"] or _USUAL_MTU,
        "addresses": _bridge_addresses(links, bridge),
        "mac": before["mac"] or first["mac"],
        "bridge": {**(before["bridge"] or {}), **bridge.options},
        "vlans": before["vlans"],
    }


def _bridge_addresses(links: dict[str, Link], bridge: Bridge) -> list[Address]:
    had = [a for name in (bridge.name, *bridge.ports) for a in _addresses(links, name) if _moved(a)]
    if bridge.addresses is None:
        return had
    by_text = {a["address"]: a for a in had}
    # What routers have advertised comes back with their next word, however often it is taken away.
    told = [a for a in had if ":" in a["address"] and a["valid_s"] is not None]
    told = [a for a in told if a["address"] not in bridge.addresses]
    # What was leased is static from now on: nobody would renew it.
    static: list[Address] = [
        {**by_text.get(text, _static(text)), "valid_s": None} for text in bridge.addresses
    ]
    return [*static, *told]


def _port_link(link: Link, bridge: Bridge) -> Link:
    return {
        **link,
        "master": bridge.name,
        "up": True,
        "addresses": [a for a in link["addresses"] if not _moved(a)],
        "mtu": bridge.mtu or link["mtu"],
        "vlans": sorted({*link["vlans"], *bridge.vlans}),
    }


def _rerouted(route: Route, links: Collection[str], heir: str | None) -> Route:
    """Return a route over any of these links as one over another link."""
    return {**route, "oif": heir} if route["oif"] in links else route


def _with_gateway(routes: list[Route], bridge: Bridge) -> list[Route]:
    if bridge.gateway is None:
        return routes
    family = 10 if ":" in bridge.gateway else 2
    defaults = [r for r in routes if r["dst"] == "default" and r["family"] == family]
    had = [r for r in defaults if r["gateway"] == bridge.gateway]
    made: Route = {
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
    return [*(r for r in routes if r not in defaults), *(had or [made])]


def without(snapshot: Snapshot, name: str, ports: Collection[str]) -> Snapshot:
    """Return the snapshot without a bridge: what it had goes to its one port, if it has one."""
    links = snapshot["links"]
    out = {one: link for one, link in links.items() if one != name}
    for port in ports:
        # A port that has left the bridge already inherits all the same, and is never removed.
        if port in links:
            out[port] = {**links[port], "master": None}
    heir = next(iter(ports)) if len(ports) == 1 else None
    if heir is not None:
        moved = [a for a in links[name]["addresses"] if _moved(a)]
        out[heir] = {**out[heir], "addresses": [*out[heir]["addresses"], *moved]}
    routes = [_rerouted(route, (name,), heir) for route in snapshot["routes"]]
    return {"links": out, "routes": [r for r in routes if r["oif"]]}


def operations(current: Snapshot, wanted: Snapshot) -> list[Step]:
    """
    Return the steps from one snapshot to another; no address is ever on two links.

    Each is ``(verb, link, argument)``; routes come last, since those of an address go with it.
    """
    old, new = current["links"], wanted["links"]
    released = _released(old, new)
    steps = [
        *_created(old, new),
        *_attributes(old, new),
        *_masters(old, new),
        *released,
        *(("delete", name, None) for name in old if name not in new),
        *(("up", name, new[name]["up"]) for name in new if name not in old or not old[name]["up"]),
        # With its first address the kernel may take away all others of a subnet.
        *_assigned(old, new, lost={name for _verb, name, _address in released}),
        *_vlans(old, new),
    ]
    changed = any(verb not in ("vlan", "bridge") for verb, _name, _value in steps)
    return [*steps, *_routes(current, wanted, changed)]


def _created(old: dict[str, Link], new: dict[str, Link]) -> list[Step]:
    made = {name: link for name, link in new.items() if name not in old}
    options: list[Step] = [
        ("bridge", name, {key: value})
        for name, link in made.items()
        for key, value in (link["bridge"] or {}).items()
    ]
    return [*(("create", name, link) for name, link in made.items()), *options]


def _masters(old: dict[str, Link], new: dict[str, Link]) -> list[Step]:
    there = [name for name in new if name in old]
    wanted = {name: new[name]["master"] for name in there}
    return [("master", n, master) for n, master in wanted.items() if old[n]["master"] != master]


def _addresses(links: dict[str, Link], name: str) -> list[Address]:
    return links[name]["addresses"] if name in links else []


def _released(old: dict[str, Link], new: dict[str, Link]) -> list[Step]:
    """Return the steps that take from each link the addresses that it does not have any more."""
    steps: list[Step] = []
    for name, link in old.items():
        stays = {a["address"] for a in _addresses(new, name)}
        going = [a for a in link["addresses"] if a["address"] not in stays and _moved(a)]
        steps += [("del_address", name, a) for a in going]
    return steps


def _assigned(old: dict[str, Link], new: dict[str, Link], lost: Collection[str]) -> list[Step]:
    """Return the steps that give each link the addresses that it lacks, all of ``lost`` links."""
    steps: list[Step] = []
    for name, link in new.items():
        has = set() if name in lost else set(map(_lasting, _addresses(old, name)))
        coming = [a for a in link["addresses"] if _lasting(a) not in has and _moved(a)]
        steps += [("add_address", name, a) for a in coming]
    return steps


def _vlans(old: dict[str, Link], new: dict[str, Link]) -> list[Step]:
    has = {name: set(link["vlans"]) for name, link in old.items()}
    return [
        ("vlan", name, vid)
        for name, link in new.items()
        for vid in link["vlans"]
        if vid not in has.get(name, ())
    ]


def _routes(current: Snapshot, wanted: Snapshot, changed: bool) -> list[Step]:
    """Return the steps of the routes; all are made again if any address or link has changed."""
    had, new = current["routes"], wanted["routes"]
    gone = set(current["links"]) - set(wanted["links"])
    stale = [r for r in had if r not in new and r["oif"] not in gone]
    again = new if changed else [r for r in new if r not in had]
    return [
        *(("del_route", _device(r), r) for r in stale),
        *(("route", _device(r), r) for r in sorted(again, key=_needs)),
    ]


def _device(route: Route) -> str:
    """Return the link that a route of a plan is over; routes without one are never in a plan."""
    return route["oif"] or ""


def _needs(route: Route) -> tuple[bool, bool]:
    """Return a key that sorts routes behind those by which their gateways are reached."""
    return bool(route["gateway"]), route["dst"] == "default"


def _attributes(old: dict[str, Link], new: dict[str, Link]) -> list[Step]:
    steps: list[Step] = []
    for name, link in new.items():
        if name in old:
            steps += [("bridge", name, {k: v}) for k, v in _options(old[name], link).items()]
            steps += _settings(name, old[name], link)
    return steps


def _options(old: Link, new: Link) -> dict[str, int]:
    asked, there = new["bridge"] or {}, old["bridge"] or {}
    # Without STP the kernel waits for nothing, and NetworkManager sets a delay all the same.
    idle = () if asked.get("stp") else ("forward_delay_cs",)
    return {k: v for k, v in asked.items() if there.get(k) != v and k not in idle}


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
