"""What the NICs of a VM need of a host, by its call and by the profile that the host has."""

from dataclasses import dataclass

from saltvirt.model import DEFAULT_BRIDGE, Requirements
from saltvirt.placement.answers import NicPlace, NicProfile


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
    left = _left(required, profile.nics)

    def needed(kind: str, said: tuple[str, ...]) -> frozenset[str]:
        return frozenset({*said, *(one.on for one in left if one.need == kind and one.on)})

    return Wiring(
        bridges=needed("bridges", required.bridges),
        networks=needed("networks", required.networks),
        links=needed("links", required.links),
        is_tagged=required.bridge_vlans
        or any(one.need == "bridges" and one.tagged for one in left),
    )


def _left(required: Requirements, nics: dict[str, NicPlace]) -> list[NicPlace]:
    """Return where the NICs are that the call does not say it of, with what it adds to them."""
    usual = NicPlace(need="bridges", on=DEFAULT_BRIDGE, tagged=False)
    added = dict(required.unplaced)
    left = {name: one for name, one in nics.items() if name not in required.placed}
    places = {**dict.fromkeys(added, usual), **left}
    return [
        NicPlace(need=one.need, on=one.on, tagged=one.tagged or added.get(name, False))
        for name, one in places.items()
    ]
