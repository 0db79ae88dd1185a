"""Read and change the running network through netlink, with pyroute2."""

import errno
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from saltvirt.core.errors import VirtError
from saltvirt.core.salt import lazyimport
from saltvirt.network.bridge.bridgeplan import Step
from saltvirt.network.bridge.snapshot import Address, Link, Route, Snapshot

# Imported on first use, because the import takes longer than most commands.
pyroute2 = lazyimport.OptionalModule("pyroute2")

MISSING = (
    "the Python module 'pyroute2', which changes links, is missing on this minion; install it "
    "with 'salt-pip install pyroute2' or the distribution's python3-pyroute2"
)
_PROTO_KERNEL = 2
_FOREVER = 0xFFFFFFFF
_NODAD = 0x02
# NUD_REACHABLE, STALE, DELAY, PROBE and PERMANENT: the neighbour has answered.
_LEARNED = 0x02 | 0x04 | 0x08 | 0x10 | 0x80
_CLONED, _ONLINK = 0x200, 0x04
# Parts of a route that a snapshot does not have: the rollback would restore another route.
_STRANGE = {
    "RTA_VIA": "a gateway of the other family",
    "RTA_ENCAP": "an encapsulation",
    "RTA_NH_ID": "a next hop of its own",
}
_LOCAL_TABLE = 255
_ATTRIBUTES = {
    "stp": "IFLA_BR_STP_STATE",
    "forward_delay_cs": "IFLA_BR_FORWARD_DELAY",
    "vlan_filtering": "IFLA_BR_VLAN_FILTERING",
}


class LinkError(VirtError):
    """The kernel refused a change of a link; the message has the change and the reason."""


def refuse_if_impossible() -> None:
    """Raise LinkError if this minion cannot change links."""
    if lazyimport.is_missing(pyroute2):
        raise LinkError(MISSING)


@contextmanager
def _open_netlink() -> Iterator[Any]:
    try:
        with pyroute2.IPRoute() as ipr:
            yield ipr
    except pyroute2.NetlinkError as exc:  # another process changes links
        raise LinkError(
            f"the kernel does not say which links there are: {_error_text(exc)}"
        ) from exc


def names() -> list[str]:
    """Return the names of all links except the loopback."""
    with _open_netlink() as ipr:
        link_names = [link.get_attr("IFLA_IFNAME") for link in ipr.get_links()]
    return sorted(name for name in link_names if name != "lo")


def ports_of(bridge: str) -> list[str]:
    """Return the names of a bridge's ports."""
    with _open_netlink() as ipr:
        index = {link.get_attr("IFLA_IFNAME"): link["index"] for link in ipr.get_links()}
        return sorted(
            link.get_attr("IFLA_IFNAME")
            for link in ipr.get_links()
            if bridge in index and link.get_attr("IFLA_MASTER") == index[bridge]
        )


def read(link_names: Collection[str]) -> Snapshot:
    """Return a snapshot of these links, as far as they exist."""
    with _open_netlink() as ipr:
        links_by_index = {link["index"]: link for link in ipr.get_links()}
        by_index = {index: link.get_attr("IFLA_IFNAME") for index, link in links_by_index.items()}
        addresses = list(ipr.get_addr())
        routes = [r for family in (2, 10) for r in ipr.get_routes(family=family)]
        vlans = _vlans(ipr)
        links = {
            by_index[index]: _link(link, by_index, addresses, vlans)
            for index, link in links_by_index.items()
            if by_index[index] in link_names
        }
    plan_routes = [_route(route, by_index) for route in routes]
    return {"links": links, "routes": [r for r in plan_routes if r and r["oif"] in links]}


def _vlans(ipr: Any) -> dict[int, list[int]]:
    """Return ``{index: [VLAN]}`` of the ports of bridges with VLAN filtering."""
    out = {}
    try:
        for message in ipr.get_vlans():
            spec = message.get_attr("IFLA_AF_SPEC")
            entries = spec.get_attrs("IFLA_BRIDGE_VLAN_INFO") if spec else []
            out[message["index"]] = sorted(entry["vid"] for entry in entries)
    except pyroute2.NetlinkError as exc:
        if exc.code != errno.EOPNOTSUPP:
            raise
    return out


def _link(
    link: Any, by_index: dict[int, str], addresses: list[Any], vlans: dict[int, list[int]]
) -> Link:
    info = link.get_attr("IFLA_LINKINFO")
    kind = info.get_attr("IFLA_INFO_KIND") if info else None
    data = info.get_attr("IFLA_INFO_DATA") if info and kind == "bridge" else None
    options = {k: data.get_attr(a) for k, a in _ATTRIBUTES.items()} if data else None
    return {
        "kind": kind,
        "master": by_index.get(link.get_attr("IFLA_MASTER")),
        "up": bool(link["flags"] & 1),
        "mtu": link.get_attr("IFLA_MTU"),
        "mac": link.get_attr("IFLA_ADDRESS"),
        "bridge": {k: v for k, v in options.items() if v is not None} if options else None,
        "addresses": [_address(a) for a in addresses if a["index"] == link["index"]],
        "vlans": vlans.get(link["index"], []),
    }


def _address(message: Any) -> Address:
    # IFA_ADDRESS of a point-to-point address is the peer's.
    text = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
    cache = message.get_attr("IFA_CACHEINFO") or {}
    valid = cache.get("ifa_valid", _FOREVER)
    peer = message.get_attr("IFA_ADDRESS")
    return {
        "peer": peer if peer != text else None,
        "address": f"{text}/{message['prefixlen']}",
        "broadcast": message.get_attr("IFA_BROADCAST"),
        "scope": message["scope"],
        "valid_s": None if valid == _FOREVER else valid,
    }


def _route(message: Any, by_index: dict[int, str]) -> Route | None:
    """Return a route, None if the kernel creates it with an address."""
    table = message.get_attr("RTA_TABLE") or message["table"]
    if message["proto"] == _PROTO_KERNEL or table == _LOCAL_TABLE or message["flags"] & _CLONED:
        return None
    hops = message.get_attr("RTA_MULTIPATH") or []
    oif = message.get_attr("RTA_OIF") or next((hop["oif"] for hop in hops), None)
    dst = message.get_attr("RTA_DST")
    return {
        "family": message["family"],
        "dst": f"{dst}/{message['dst_len']}" if dst else "default",
        "gateway": message.get_attr("RTA_GATEWAY"),
        "oif": by_index.get(oif or 0),
        "table": table,
        "priority": message.get_attr("RTA_PRIORITY"),
        "prefsrc": message.get_attr("RTA_PREFSRC"),
        "scope": message["scope"],
        "proto": message["proto"],
        "type": message["type"],
        "is_multipath": bool(hops),
        "is_onlink": bool(message["flags"] & _ONLINK),
        "metrics": _metrics(message),
        "strange": next((_STRANGE[key] for key in _STRANGE if message.get_attr(key)), None),
    }


def _metrics(message: Any) -> dict[str, Any]:
    metrics = message.get_attr("RTA_METRICS")
    attributes = metrics["attrs"] if metrics else []
    return {key.removeprefix("RTAX_").lower(): value for key, value in attributes if value}


def neighbours(bridge_macs: Collection[tuple[str, str]]) -> list[str]:
    """
    Return the addresses of these machines in this host's neighbour table, IPv4 first.

    bridge_macs
        Pairs of a bridge and a MAC.
    """
    refuse_if_impossible()
    with _open_netlink() as ipr:
        links_by_index = {link["index"]: link for link in ipr.get_links()}
        # Neighbours may be known on a VLAN of the bridge, if this host's address is there.
        names_by_index = {
            index: {
                link.get_attr("IFLA_IFNAME"),
                _name_of(links_by_index, link.get_attr("IFLA_LINK")),
            }
            for index, link in links_by_index.items()
        }
        messages = [message for family in (2, 10) for message in ipr.get_neighbours(family=family)]
    macs = [(bridge, mac.lower()) for bridge, mac in bridge_macs]
    return [
        message.get_attr("NDA_DST")
        for message in messages
        if message["state"] & _LEARNED
        and any(
            bridge in names_by_index.get(message["ifindex"], ())
            and mac == message.get_attr("NDA_LLADDR")
            for bridge, mac in macs
        )
    ]


def _name_of(links_by_index: dict[int, Any], index: int | None) -> str | None:
    link = links_by_index.get(index or 0)
    return link.get_attr("IFLA_IFNAME") if link else None


def master(name: str) -> str | None:
    """Return the name of the bridge or bond that a link is a port of, or None."""
    link = read([name])["links"].get(name)
    return link["master"] if link else None


def wait_for(condition: Callable[[], object], timeout_s: float) -> bool:
    """Wait until a condition is true; return whether that was within ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not (outcome := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return bool(outcome)


def set_lifetime(link: str, address: str, seconds: int | None) -> None:
    """Set the remaining lifetime of an IPv4 address of a link, if the link has it."""
    with pyroute2.IPRoute() as ipr:
        by_index = {entry["index"]: entry.get_attr("IFLA_IFNAME") for entry in ipr.get_links()}
        for message in ipr.get_addr(family=2):
            old_address = _address(message)
            if by_index[message["index"]] == link and old_address["address"].startswith(
                f"{address}/"
            ):
                _add_address(ipr, link, {**old_address, "valid_s": seconds})


def execute(steps: Iterable[Step]) -> None:
    """Carry out the steps of a plan; raise LinkError at the first failure."""
    with pyroute2.IPRoute() as ipr:
        for step in steps:
            _carry_out(ipr, *step)


def roll_back(steps: Iterable[Step]) -> None:
    """Try every step of a rollback, even after failures; raise the first failure at the end."""
    failed = None
    with pyroute2.IPRoute() as ipr:
        for step in steps:
            try:
                _carry_out(ipr, *step)
            except Exception as exc:  # not even a bug may skip the other steps
                failed = failed or exc
    if isinstance(failed, LinkError):
        raise failed
    if failed:
        raise LinkError(f"a step of the rollback failed: {failed!r}") from failed


def _carry_out(ipr: Any, verb: str, link: str, value: Any) -> None:
    try:
        _VERBS[verb](ipr, link, value)
    except (pyroute2.NetlinkError, OSError) as exc:
        raise LinkError(f"{_refusal_text(verb, link, value)}: {_error_text(exc)}") from exc


def _refusal_text(verb: str, link: str, value: Any) -> str:
    if verb == "bridge":
        options = ", ".join(f"{key}={option_value}" for key, option_value in value.items())
        return f"the kernel refused {options} of {link}"
    return f"the kernel refused to {verb.replace('_', ' ')} {link}"


def _error_text(exc: Any) -> str:
    code = getattr(exc, "code", None) or exc.errno
    if code == errno.EOPNOTSUPP:
        return "not supported by this kernel"
    return exc.args[-1] if exc.args else str(exc)


def _index(ipr: Any, name: str) -> int:
    indexes = ipr.link_lookup(ifname=name)
    if not indexes:
        raise OSError(errno.ENODEV, f"there is no link {name}")
    out: int = indexes[0]
    return out


def _create(ipr: Any, name: str, link: Link) -> None:
    ipr.link("add", ifname=name, kind="bridge", address=link["mac"])
    ipr.link("set", index=_index(ipr, name), mtu=link["mtu"])


def _bridge(ipr: Any, name: str, options: dict[str, int]) -> None:
    attributes = {
        f"br_{_ATTRIBUTES[key].removeprefix('IFLA_BR_').lower()}": value
        for key, value in options.items()
    }
    ipr.link("set", index=_index(ipr, name), kind="bridge", **attributes)


def _set(ipr: Any, name: str, values: dict[str, Any]) -> None:
    attributes = {"address" if key == "mac" else key: value for key, value in values.items()}
    ipr.link("set", index=_index(ipr, name), **attributes)


def _master(ipr: Any, name: str, master: str | None) -> None:
    ipr.link("set", index=_index(ipr, name), master=_index(ipr, master) if master else 0)


def _delete(ipr: Any, name: str, _value: Any) -> None:
    ipr.link("del", index=_index(ipr, name))


def _up(ipr: Any, name: str, is_up: bool) -> None:
    ipr.link("set", index=_index(ipr, name), state="up" if is_up else "down")


def _add_address(ipr: Any, name: str, address: Address) -> None:
    text, _slash, prefix = address["address"].partition("/")
    arguments = {"address": text, "prefixlen": int(prefix), "scope": address["scope"]}
    if address.get("peer"):
        arguments |= {"address": address["peer"], "local": text}
    if address["broadcast"]:
        arguments["broadcast"] = address["broadcast"]
    if address["valid_s"] is not None:
        # pyroute2 before 0.9 reads ``cacheinfo``, later ones the keys; the order matters.
        lifetimes = {"preferred": address["valid_s"], "valid": address["valid_s"]}
        arguments |= {**lifetimes, "cacheinfo": lifetimes}
    if ":" in text:
        # Skip duplicate detection: the address was just in use, and would be lost for a second.
        arguments["flags"] = _NODAD
    ipr.addr("replace", index=_index(ipr, name), **arguments)


def _del_address(ipr: Any, name: str, address: Address) -> None:
    text, _slash, prefix = address["address"].partition("/")
    arguments = (
        {"address": address["peer"], "local": text} if address.get("peer") else {"address": text}
    )
    try:
        ipr.addr("del", index=_index(ipr, name), prefixlen=int(prefix), **arguments)
    except pyroute2.NetlinkError as exc:
        if exc.code != errno.EADDRNOTAVAIL:  # deleted with the primary address of its subnet
            raise


def _route_arguments(ipr: Any, route: Route) -> dict[str, Any]:
    arguments = {
        "dst": route["dst"],
        "family": route["family"],
        "oif": _index(ipr, route["oif"] or ""),
    }
    keys = ("gateway", "table", "priority", "prefsrc", "scope", "proto", "type")
    arguments |= {key: value for key, value in route.items() if key in keys and value is not None}
    if route.get("is_onlink"):
        arguments["flags"] = _ONLINK
    if route.get("metrics"):
        arguments["metrics"] = route["metrics"]
    return arguments


def _add_route(ipr: Any, _name: str, route: Route) -> None:
    ipr.route("replace", **_route_arguments(ipr, route))


def _del_route(ipr: Any, _name: str, route: Route) -> None:
    try:
        ipr.route("del", **_route_arguments(ipr, route))
    except pyroute2.NetlinkError as exc:
        if exc.code not in (errno.ESRCH, errno.ENODEV):  # deleted with its address
            raise


def _vlan(ipr: Any, name: str, vid: int) -> None:
    ipr.vlan_filter("add", index=_index(ipr, name), vlan_info={"vid": vid})


_VERBS: dict[str, Callable[[Any, str, Any], None]] = {
    "create": _create,
    "bridge": _bridge,
    "set": _set,
    "master": _master,
    "delete": _delete,
    "up": _up,
    "add_address": _add_address,
    "del_address": _del_address,
    "route": _add_route,
    "del_route": _del_route,
    "vlan": _vlan,
}
