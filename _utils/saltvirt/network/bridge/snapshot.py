"""Links, addresses and routes before and after a change of the network: plain data."""

from typing import Any, TypedDict

LINK_LOCAL = 253  # an address's scope, RT_SCOPE_LINK


class _Address(TypedDict):
    # With its prefix: 10.0.0.4/16.
    address: str
    broadcast: str | None
    scope: int
    # None: unlimited.
    valid_s: int | None


class Address(_Address, total=False):
    """An address of a link."""

    peer: str | None


class Link(TypedDict):
    """A link; ``bridge`` has the options of a bridge, None for other links."""

    kind: str | None
    master: str | None
    up: bool
    mtu: int | None
    mac: str | None
    bridge: dict[str, int] | None
    addresses: list[Address]
    vlans: list[int]


class _Route(TypedDict):
    family: int
    dst: str
    gateway: str | None
    oif: str | None
    table: int
    priority: int | None
    prefsrc: str | None
    scope: int
    proto: int
    type: int
    is_multipath: bool


class Route(_Route, total=False):
    """A route; ``strange`` names a part that is not read and would not be restored."""

    is_onlink: bool
    metrics: dict[str, Any]
    strange: str | None


class Snapshot(TypedDict):
    """The present or the target state of some links."""

    links: dict[str, Link]
    routes: list[Route]
