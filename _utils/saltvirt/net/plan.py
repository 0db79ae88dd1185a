"""
What a bridge needs to change: pure functions over a snapshot of the links that take part.

A snapshot is ``{"links": {name: link}, "routes": [route]}``. A link has ``kind``, ``master``,
``up``, ``mtu``, ``mac``, ``bridge`` (options, None for other links), ``addresses`` and ``vlans``.
An address has ``address`` (with its prefix), ``broadcast``, ``scope``, ``valid_s`` (None: ever).
"""

from dataclasses import dataclass, field

from saltvirt.errors import BadArgument, VirtError

_LINK_LOCAL = 253
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
    options: dict = field(default_factory=dict)
    vlans: tuple[int, ...] = ()


def refuse_impossible(snapshot, bridge, every):
    """Raise BridgeRefused if a port cannot be one; ``every`` is the names of all links."""
    there = snapshot["links"].get(bridge.name)
    if there and there["kind"] != "bridge":
        raise BridgeRefused(f"{bridge.name!r} exists and is no bridge; choose another name")
    for port in bridge.ports:
        _refuse_port(snapshot["links"].get(port), port, bridge.name, every)
    refuse_unmovable(snapshot)


def refuse_unmovable(snapshot):
    """Raise BridgeRefused if an address or a route would not be the same on another link."""
    for route in snapshot["routes"]:
        if route["is_multipath"]:
            raise BridgeRefused(f"the route {route['dst']} has several next hops, which are not "
                                "moved; make it a simple one first")  # fmt: skip
        if route.get("strange"):
            raise BridgeRefused(f"the route {route['dst']} has {route['strange']}, which is not "
                                "moved; make it a simple one first")  # fmt: skip
    for name, link in snapshot["links"].items():
        for one in link["addresses"]:
            if one.get("peer") and _moved(one):
                raise BridgeRefused(f"{one['address']} of {name} has a peer ({one['peer']}), which "
                                    "is not moved; make it a usual address first")  # fmt: skip


def _refuse_port(link, port, bridge, every):
    if link is None:
        raise BadArgument("ports", f"no link {port!r} on this host; there are: "
                          f"{', '.join(sorted(every))}")  # fmt: skip
    if link["kind"] == "bridge":
        raise BridgeRefused(f"{port!r} is a bridge itself; a bridge cannot be a port")
    if link["master"] not in (None, bridge):
        raise BridgeRefused(f"{port!r} is a port of {link['master']} already; take it out first")


def _moved(address):
    return address["scope"] != _LINK_LOCAL


def _static(text):
    return {"address": text, "broadcast": None, "scope": 0, "valid_s": None}


def _lasting(address):
    return address["address"], address["valid_s"] is None


_NEW = {"addresses": [], "mac": None, "mtu": None, "bridge": {}, "vlans": []}


def target(snapshot, bridge):
    """Return the snapshot that is wanted: the ports' addresses and routes are the bridge's."""
    links, name = snapshot["links"], bridge.name
    ports = [links[port] for port in bridge.ports]
    before = links.get(name) or _NEW
    moved = [a for port in ports for a in port["addresses"] if _moved(a)]
    kept = [a for a in before["addresses"] if _moved(a)]
    addresses = [*kept, *moved]
    if bridge.addresses is not None:
        by_text = {a["address"]: a for a in addresses}
        # What was leased is static from now on: nobody would renew it.
        addresses = [{**by_text.get(text, _static(text)), "valid_s": None}
                     for text in bridge.addresses]  # fmt: skip
    first = ports[0] if ports else {"mac": None, "mtu": 1500}
    mtu = bridge.mtu or before["mtu"] or first["mtu"]
    made = {
        "kind": "bridge", "master": None, "up": True, "mtu": mtu, "addresses": addresses,
        "mac": before["mac"] or first["mac"], "bridge": {**before["bridge"], **bridge.options},
        "vlans": before["vlans"],
    }  # fmt: skip
    out = {name: made}
    for port in bridge.ports:
        local = [a for a in links[port]["addresses"] if not _moved(a)]
        vlans = sorted({*links[port]["vlans"], *bridge.vlans})
        out[port] = {**links[port], "master": name, "up": True, "addresses": local,
                     "mtu": bridge.mtu or links[port]["mtu"], "vlans": vlans}  # fmt: skip
    routes = [{**r, "oif": name} if r["oif"] in bridge.ports else r for r in snapshot["routes"]]
    return {"links": out, "routes": _with_gateway(routes, bridge)}


def _with_gateway(routes, bridge):
    if bridge.gateway is None:
        return routes
    family = 10 if ":" in bridge.gateway else 2
    kept = [r for r in routes if not (r["dst"] == "default" and r["family"] == family)]
    had = [r for r in routes if r not in kept and r["gateway"] == bridge.gateway]
    made = {"family": family, "dst": "default", "gateway": bridge.gateway, "oif": bridge.name,
            "table": 254, "priority": None, "prefsrc": None, "scope": 0, "proto": 4, "type": 1,
            "is_multipath": False, "is_onlink": False, "metrics": {}, "strange": None}  # fmt: skip
    return [*kept, *(had or [made])]


def without(snapshot, name, ports):
    """Return the snapshot without a bridge: what it had goes to its one port, if it has one."""
    links = snapshot["links"]
    out = {one: link for one, link in links.items() if one != name}
    # A port that has left the bridge already inherits all the same, and is never removed.
    out |= {port: {**links[port], "master": None} for port in ports if port in links}
    if len(ports) == 1:
        moved = [a for a in links[name]["addresses"] if _moved(a)]
        only = out[ports[0]]
        out[ports[0]] = {**only, "addresses": [*only["addresses"], *moved]}
    heir = ports[0] if len(ports) == 1 else None
    routes = [{**r, "oif": heir} if r["oif"] == name else r for r in snapshot["routes"]]
    return {"links": out, "routes": [r for r in routes if r["oif"]]}


def operations(current, wanted):
    """
    Return the steps from one snapshot to another; no address is ever on two links.

    Each is ``(verb, link, argument)``; routes come last, since those of an address go with it.
    """
    old, new = current["links"], wanted["links"]
    steps = [("create", name, new[name]) for name in new if name not in old]
    steps += [("bridge", name, {key: value}) for name in new if name not in old
              for key, value in (new[name]["bridge"] or {}).items()]  # fmt: skip
    steps += _attributes(old, new)
    steps += [("master", n, new[n]["master"]) for n in new
              if n in old and old[n]["master"] != new[n]["master"]]  # fmt: skip
    gone = [name for name in old if name not in new]
    for name in old:
        kept = [a["address"] for a in new.get(name, {"addresses": []})["addresses"]]
        steps += [("del_address", name, a) for a in old[name]["addresses"]
                  if a["address"] not in kept and _moved(a)]  # fmt: skip
    steps += [("delete", name, None) for name in gone]
    steps += [("up", n, new[n]["up"]) for n in new if not old.get(n, {"up": False})["up"]]
    # With its first address the kernel may take away all others of a subnet.
    lost = {name for verb, name, _value in steps if verb == "del_address"}
    for name in new:
        has = [] if name in lost else list(
            map(_lasting, old.get(name, {"addresses": []})["addresses"]))  # fmt: skip
        steps += [("add_address", name, a) for a in new[name]["addresses"]
                  if _lasting(a) not in has and _moved(a)]  # fmt: skip
    steps += [("vlan", name, vid) for name in new
              for vid in new[name]["vlans"] if vid not in old.get(name, {"vlans": []})["vlans"]]
    changed = any(verb not in ("vlan", "bridge") for verb, _name, _value in steps)
    stale = [r for r in current["routes"] if r not in wanted["routes"]]
    steps += [("del_route", r["oif"], r) for r in stale if r["oif"] not in gone]
    again = wanted["routes"] if changed else [r for r in wanted["routes"]
                                              if r not in current["routes"]]  # fmt: skip
    return steps + [("route", r["oif"], r) for r in sorted(again, key=_needs)]


def _needs(route):
    """Return a key that sorts routes behind those by which their gateways are reached."""
    return bool(route["gateway"]), route["dst"] == "default"


def _attributes(old, new):
    steps = []
    for name in new:
        if name not in old:
            continue
        asked = new[name]["bridge"] or {}
        # Without STP the kernel waits for nothing, and NetworkManager sets a delay all the same.
        options = {k: v for k, v in asked.items() if (old[name]["bridge"] or {}).get(k) != v
                   and (k != "forward_delay_cs" or asked.get("stp"))}  # fmt: skip
        steps += [("bridge", name, {key: value}) for key, value in options.items()]
        steps += [("set", name, {key: new[name][key]}) for key in ("mtu", "mac")
                  if old[name][key] != new[name][key]]  # fmt: skip
    return steps


def describe(steps):
    """Return the steps as users read them: ``{link: [text]}``."""
    out = {}
    texts = {
        "create": lambda v: "created",
        "delete": lambda v: "removed",
        "master": lambda v: f"becomes a port of {v}" if v else "is no port any more",
        "bridge": lambda v: ", ".join(f"{key}={value}" for key, value in sorted(v.items())),
        "set": lambda v: ", ".join(f"{key} {value}" for key, value in v.items()),
        "up": lambda v: "up",
        "add_address": lambda v: f"gets {v['address']}",
        "del_address": lambda v: f"gives up {v['address']}",
        "vlan": lambda v: f"VLAN {v}",
        "route": lambda v: f"route {v['dst']}" + (f" via {v['gateway']}" if v["gateway"] else ""),
    }
    for verb, link, value in steps:
        if verb in texts:
            out.setdefault(link, []).append(texts[verb](value))
    return out
