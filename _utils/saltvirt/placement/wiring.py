"""What the NICs of a VM need of a host, by its call and by the profile that the host has."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from saltvirt.model import DEFAULT_BRIDGE, CalledNic, Requirements, need_of
from saltvirt.placement.answers import NicPlace, NicProfile

_NOTHING = CalledNic()
# What a NIC is of which neither a call nor a profile says anything.
_USUAL = NicPlace(type="bridge", on=DEFAULT_BRIDGE, tagged=False, switched=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """What is needed; ``is_tagged`` says whether a Linux bridge must tag VLANs."""

    bridges: frozenset[str]
    networks: frozenset[str]
    links: frozenset[str]
    is_tagged: bool


def of(required: Requirements, profile: NicProfile | None) -> Wiring:
    """
    Return what a VM's NICs need of a host.

    profile
        The host's of the name that the call has; None for none. An older host says only what all
        of its NICs need, also of those that the call has elsewhere.
    """
    profile = profile or NicProfile()
    if profile.nics is None:
        return Wiring(
            bridges=frozenset({*required.bridges, *(profile.bridges or ())}),
            networks=frozenset({*required.networks, *(profile.networks or ())}),
            links=frozenset({*required.links, *(profile.links or ())}),
            is_tagged=required.bridge_vlans or bool(profile.bridge_vlans),
        )
    called = dict(required.called)
    found = [
        _merged(called.get(name, _NOTHING), profile.nics.get(name, _USUAL))
        for name in {**profile.nics, **called}
    ]
    return Wiring(
        bridges=_on("bridges", found),
        networks=_on("networks", found),
        links=_on("links", found),
        is_tagged=any(one.tagged and _need(one) == "bridges" for one in found),
    )


def _on(need: str, places: Iterable[NicPlace]) -> frozenset[str]:
    return frozenset(one.on for one in places if one.on and _need(one) == need)


def _need(one: NicPlace) -> str | None:
    return need_of(one.type, is_switched=one.switched)


def _merged(said: CalledNic, has: NicPlace) -> NicPlace:
    """Return where a NIC is, by what a call says of it: as :func:`saltvirt.nics.override` does."""
    kind = said.type or has.type
    # Of another type, the profile's source would be something else's name.
    on = said.source or (has.on if kind == has.type else None)
    return NicPlace(
        type=kind,
        on=on or (DEFAULT_BRIDGE if kind == "bridge" else None),
        tagged=has.tagged if said.tagged is None else said.tagged,
        switched=has.switched if said.switched is None else said.switched,
    )


def may_be_on(requests: Iterable[Requirements]) -> set[str]:
    """Return the names that NICs of calls with a profile may be on: of what, the profile says."""
    called = [said for one in requests for _name, said in one.called]
    return {said.source or DEFAULT_BRIDGE for said in called}


def told(profiles: Collection[NicProfile]) -> dict[str, set[str]]:
    """
    Return the bridges, networks and links that a host says of whether it has them, by profiles.

    A call may make a port of Open vSwitch, say, of what a profile has on a Linux bridge.
    """
    on = {place.on for one in profiles for place in (one.nics or {}).values() if place.on}
    return {
        need: on.union(*(getattr(one, need) or () for one in profiles))
        for need in ("bridges", "networks", "links")
    }
