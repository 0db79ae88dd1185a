"""The needs of a VM's NICs, by its call and by the profile that the host has."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from saltvirt.core.model import DEFAULT_BRIDGE, CalledNic, Requirements, host_need
from saltvirt.placement.answers import NicPlace, NicProfile

_NOTHING = CalledNic()
# A NIC that neither a call nor a profile describes.
_USUAL = NicPlace(type="bridge", on=DEFAULT_BRIDGE, tagged=False, switched=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """The needs of NICs; ``is_tagged`` means that a Linux bridge must tag VLANs."""

    bridges: frozenset[str]
    networks: frozenset[str]
    links: frozenset[str]
    is_tagged: bool


def for_vm(required: Requirements, profile: NicProfile | None) -> Wiring:
    """
    Return the needs of a VM's NICs.

    profile
        The host's profile of the name in the call; None for none. A profile without ``nics`` has
        only the needs of all of its NICs together, also of those that the call places elsewhere.
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
    nic_places = [
        _merge(called.get(name, _NOTHING), profile.nics.get(name, _USUAL))
        for name in {**profile.nics, **called}
    ]
    return Wiring(
        bridges=_needed_names("bridges", nic_places),
        networks=_needed_names("networks", nic_places),
        links=_needed_names("links", nic_places),
        is_tagged=any(place.tagged and _need(place) == "bridges" for place in nic_places),
    )


def _needed_names(need: str, places: Iterable[NicPlace]) -> frozenset[str]:
    return frozenset(place.on for place in places if place.on and _need(place) == need)


def _need(place: NicPlace) -> str | None:
    return host_need(place.type, is_switched=place.switched)


def _merge(called_nic: CalledNic, profile_nic: NicPlace) -> NicPlace:
    """Return a NIC's place with the values of a call, like :func:`saltvirt.core.nics.override`."""
    kind = called_nic.type or profile_nic.type
    # The source of a profile's NIC of another type is the name of a different object.
    on = called_nic.source or (profile_nic.on if kind == profile_nic.type else None)
    return NicPlace(
        type=kind,
        on=on or (DEFAULT_BRIDGE if kind == "bridge" else None),
        tagged=profile_nic.tagged if called_nic.tagged is None else called_nic.tagged,
        switched=profile_nic.switched if called_nic.switched is None else called_nic.switched,
    )


def possible_names(requests: Iterable[Requirements]) -> set[str]:
    """Return the names that NICs of calls with a profile may be on; the profile tells of what."""
    called_nics = [called_nic for request in requests for _name, called_nic in request.called]
    return {called_nic.source or DEFAULT_BRIDGE for called_nic in called_nics}


def names_in_profiles(profiles: Collection[NicProfile]) -> dict[str, set[str]]:
    """
    Return the bridges, networks and links to check on a host for its profiles.

    A call may, for example, make a port of Open vSwitch of a profile's NIC on a Linux bridge.
    """
    names = {
        place.on for profile in profiles for place in (profile.nics or {}).values() if place.on
    }
    return {
        need: names.union(*(getattr(profile, need) or () for profile in profiles))
        for need in ("bridges", "networks", "links")
    }
