"""The needs of NICs: by a call, and by the profile of that name on the host."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import told
from saltvirt.core.errors import BadArgument
from saltvirt.core.model import Nic, Policy
from saltvirt.core.nics import host_needs
from saltvirt.placement import brief, fit, generation, wiring
from saltvirt.placement.answers import NetworkFacts, NicPlace, NicProfile
from saltvirt.vm import profiles, spec

FLEET = Path(__file__).parents[2] / "data/fleets/three.json"
BRIDGED = NicPlace(type="bridge", on="br0", tagged=False, switched=False)
VLAN = "cannot tag VLANs on a Linux bridge"


def profile(**nics):
    """Return a profile as a host of this release reports it."""
    profile_nics = [
        Nic(
            name=name,
            type=place.type,
            source=place.on,
            extra={
                **({"vlan": {}} if place.tagged else {}),
                **(SWITCHED if place.switched else {}),
            },
        )
        for name, place in nics.items()
    ]
    needs = host_needs(profile_nics)
    names = {kind: list(needs[kind]) for kind in ("bridges", "networks", "links")}
    return NicProfile(**names, bridge_vlans=needs["bridge_vlans"], nics=nics)


SWITCHED = {"virtualport": {"type": "openvswitch"}}
DEFAULT_PROFILE = profile(eth0=BRIDGED)
NAT_PROFILE = profile(eth0=replace(BRIDGED, type="network", on="default"))


def needs_of(interfaces, nic_profile, nic="default"):
    """Return the needs of a call on a host with this profile."""
    required = spec.requirements_from_master("v", 1, 64, {"nic": nic, "interfaces": interfaces})
    needs = wiring.for_vm(required, nic_profile)
    return {*needs.bridges}, {*needs.networks}, {*needs.links}, needs.is_tagged


@pytest.mark.parametrize(
    ("nic", "nic_profile", "expected"),
    [
        ({"name": "eth0", "network": "lan"}, DEFAULT_PROFILE, (set(), {"lan"}, set(), False)),
        ({"name": "eth1", "network": "lan"}, DEFAULT_PROFILE, ({"br0"}, {"lan"}, set(), False)),
        ({"name": "eth0", "source": "br7"}, DEFAULT_PROFILE, ({"br7"}, set(), set(), False)),
        ({"name": "eth0", "vlan": 7}, DEFAULT_PROFILE, ({"br0"}, set(), set(), True)),
        ({"name": "eth0", "vlan": 7}, NAT_PROFILE, (set(), {"default"}, set(), False)),
        ({"name": "eth1", "vlan": 7}, NAT_PROFILE, ({"br0"}, {"default"}, set(), True)),
        ({"name": "eth0", "vlan": 7, **SWITCHED}, DEFAULT_PROFILE, (set(), set(), {"br0"}, False)),
        (
            {"name": "eth0", "network": "lan"},
            profile(eth0=replace(BRIDGED, tagged=True)),
            (set(), {"lan"}, set(), False),
        ),
        # An older host does not report what each of its NICs needs.
        (
            {"name": "eth0", "network": "lan"},
            replace(DEFAULT_PROFILE, nics=None),
            ({"br0"}, {"lan"}, set(), False),
        ),
        ({"name": "eth0", "mac": "52:54:00:aa:bb:01"}, None, (set(), set(), set(), False)),
    ],
)
def test_a_call_overrides_the_nic_of_a_profile(nic, nic_profile, expected):
    assert needs_of([nic], nic_profile) == expected


PROFILES = {
    "bridged": [{"name": "eth0", "source": "br5"}, {"name": "eth1", "network": "lan"}],
    "tagged": [{"name": "eth0", "source": "br5", "vlan": 5}],
    "switched": [{"name": "eth0", "source": "ovs0", **SWITCHED}],
    "macvtap": [{"name": "eth0", "type": "direct", "source": "eno1"}],
    "slirp": [{"name": "eth0", "type": "user"}],
    "device": [{"name": "eth0", "type": "hostdev", "source": "0000:01:00.1"}],
}


@pytest.mark.parametrize("name", [*PROFILES, "default", "nat"])
@pytest.mark.parametrize(
    "nic_options",
    [
        {"mac": "52:54:00:aa:bb:01"},
        {"source": "x"},
        {"bridge": "x"},
        {"network": "x"},
        {"type": "bridge"},
        {"type": "network"},
        {"type": "direct"},
        {"type": "network", "vlan": 7},
        {"type": "direct", "source": "x"},
        {"portgroup": "pg"},
        {"mode": "vepa"},
        {"type": "bridge", "source": "x", "vlan": 7},
        {"vlan": 7},
        {"vlan": None},
        SWITCHED,
    ],
)
@pytest.mark.parametrize("nic", ["eth0", "eth9"])
def test_the_needs_of_a_call_are_those_of_its_vm(name, nic_options, nic):
    call = [{"name": nic, **nic_options}]
    try:
        host_side_needs = host_needs(profiles.nics("v", PROFILES, name, call))
    except BadArgument:
        return  # the host refuses the call on its own
    places = {
        nic_of_profile.name: NicPlace(
            type=nic_of_profile.type,
            on=nic_of_profile.on,
            tagged=nic_of_profile.is_tagged,
            switched=nic_of_profile.is_switched,
        )
        for nic_of_profile in profiles.nics("v", PROFILES, name, None)
    }
    required = spec.requirements_from_master("v", 1, 64, {"nic": name, "interfaces": call})

    needs = wiring.for_vm(required, profile(**places))

    kinds = {kind: {*getattr(needs, kind)} for kind in ("bridges", "networks", "links")}
    assert kinds == {kind: {*host_side_needs[kind]} for kind in kinds}
    assert needs.is_tagged == host_side_needs["bridge_vlans"]
    # The brief of a host with exactly these reports no missing network.
    host = told.info(json.loads(FLEET.read_text())["hyper1"])
    networks = dict.fromkeys(
        host_side_needs["networks"], NetworkFacts(active=True, bridge="virbr1")
    )
    host = replace(
        host,
        bridges=list(host_side_needs["bridges"]),
        links=list(host_side_needs["links"]),
        networks=networks,
        profiles=replace(host.profiles, nic={name: profile(**places)}),
    )
    answer = brief.build_brief(host, brief.build_query([required], Policy()))
    reasons = fit.reasons(brief.to_host_info(answer, []), required)
    assert [reason for reason in reasons if reason.startswith("no ")] == []


@pytest.mark.parametrize(
    "nic_options",
    [
        {"type": "network"},
        {"type": "direct"},
        {"portgroup": "pg"},
        {"type": "network", "mtu": 9000},
    ],
)
def test_a_partial_nic_of_a_profile_is_not_refused_before_the_host_is_asked(nic_options):
    required = spec.requirements_from_master(
        "v", 1, 64, {"interfaces": [{"name": "e", **nic_options}]}
    )

    assert [name for name, _nic_options in required.called] == ["e"]


@pytest.mark.parametrize(
    ("nic_options", "reason"),
    [
        ({"type": "network"}, "type network has no source; say which network"),
        ({"portgroup": "pg"}, "portgroup is for network, not for type bridge"),
    ],
)
def test_a_partial_nic_without_a_profile_is_refused(nic_options, reason):
    call = {"nic": None, "interfaces": [{"name": "eth1", **nic_options}]}

    with pytest.raises(BadArgument, match=re.escape(reason)):
        spec.requirements_from_master("v", 1, 64, call)


@pytest.mark.parametrize(
    ("nic_options", "reason"),
    [
        ({"type": "netwrok"}, "type 'netwrok'"),
        ({"type": "user", "vlan": 7}, "not for type user"),
        ({"mode": "x"}, "'x'; one of"),
        ({"sorce": "x"}, "sorce"),
    ],
)
def test_a_nic_that_is_wrong_with_any_profile_is_refused_on_the_master(nic_options, reason):
    with pytest.raises(BadArgument, match=re.escape(reason)):
        spec.requirements_from_master("v", 1, 64, {"interfaces": [{"name": "eth0", **nic_options}]})


def test_without_a_profile_the_call_decides_alone():
    assert needs_of([{"name": "eth0", "vlan": 7}], None, nic=None) == ({"br0"}, set(), set(), True)


def test_a_host_is_not_refused_for_a_bridge_that_no_nic_is_on_and_is_for_vlans_it_cannot_tag():
    host = told.info(json.loads(FLEET.read_text())["hyper1"])
    profiles = replace(host.profiles, nic={"default": DEFAULT_PROFILE})
    host = replace(host, bridges=[], profiles=profiles)

    def reasons_for(nic):
        required = spec.requirements_from_master("v", 1, 64, {"interfaces": [nic]})
        tags = generation.reasons(generation.for_host(host), required)
        return [
            reason
            for reason in {*fit.reasons(host, required), *tags}
            if "br0" in reason or VLAN in reason
        ]

    assert reasons_for({"name": "eth0", "network": "default"}) == []
    assert any(VLAN in reason for reason in reasons_for({"name": "eth0", "vlan": 7}))
