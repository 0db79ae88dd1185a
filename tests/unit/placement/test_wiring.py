"""What NICs need of a host: by a call, and by the profile that the host has of that name."""

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
    """Return a profile as a host of this release says it."""
    made = [
        Nic(
            name=name,
            type=one.type,
            source=one.on,
            extra={**({"vlan": {}} if one.tagged else {}), **(SWITCHED if one.switched else {})},
        )
        for name, one in nics.items()
    ]
    found = host_needs(made)
    names = {kind: list(found[kind]) for kind in ("bridges", "networks", "links")}
    return NicProfile(**names, bridge_vlans=found["bridge_vlans"], nics=nics)


SWITCHED = {"virtualport": {"type": "openvswitch"}}
USUAL = profile(eth0=BRIDGED)
NATTED = profile(eth0=replace(BRIDGED, type="network", on="default"))


def needed(interfaces, found, nic="default"):
    """Return what a call needs of a host that has this profile."""
    required = spec.requirements_from_master("v", 1, 64, {"nic": nic, "interfaces": interfaces})
    out = wiring.for_vm(required, found)
    return {*out.bridges}, {*out.networks}, {*out.links}, out.is_tagged


@pytest.mark.parametrize(
    ("nic", "found", "means"),
    [
        ({"name": "eth0", "network": "lan"}, USUAL, (set(), {"lan"}, set(), False)),
        ({"name": "eth1", "network": "lan"}, USUAL, ({"br0"}, {"lan"}, set(), False)),
        ({"name": "eth0", "source": "br7"}, USUAL, ({"br7"}, set(), set(), False)),
        ({"name": "eth0", "vlan": 7}, USUAL, ({"br0"}, set(), set(), True)),
        ({"name": "eth0", "vlan": 7}, NATTED, (set(), {"default"}, set(), False)),
        ({"name": "eth1", "vlan": 7}, NATTED, ({"br0"}, {"default"}, set(), True)),
        ({"name": "eth0", "vlan": 7, **SWITCHED}, USUAL, (set(), set(), {"br0"}, False)),
        (
            {"name": "eth0", "network": "lan"},
            profile(eth0=replace(BRIDGED, tagged=True)),
            (set(), {"lan"}, set(), False),
        ),
        # An older host does not say which of its NICs needs what.
        (
            {"name": "eth0", "network": "lan"},
            replace(USUAL, nics=None),
            ({"br0"}, {"lan"}, set(), False),
        ),
        ({"name": "eth0", "mac": "52:54:00:aa:bb:01"}, None, (set(), set(), set(), False)),
    ],
)
def test_a_call_says_of_a_profiles_nic_where_it_is_and_what_it_has(nic, found, means):
    assert needed([nic], found) == means


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
    "said",
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
def test_a_call_needs_of_a_host_what_the_vm_has_there(name, said, nic):
    call = [{"name": nic, **said}]
    try:
        made = host_needs(profiles.nics("v", PROFILES, name, call))
    except BadArgument:
        return  # the host refuses it whatever it has
    has = {
        one.name: NicPlace(type=one.type, on=one.on, tagged=one.is_tagged, switched=one.is_switched)
        for one in profiles.nics("v", PROFILES, name, None)
    }
    required = spec.requirements_from_master("v", 1, 64, {"nic": name, "interfaces": call})

    out = wiring.for_vm(required, profile(**has))

    found = {kind: {*getattr(out, kind)} for kind in ("bridges", "networks", "links")}
    assert found == {kind: {*made[kind]} for kind in found}
    assert out.is_tagged == made["bridge_vlans"]
    # It says in brief that it has just that.
    host = told.info(json.loads(FLEET.read_text())["hyper1"])
    networks = dict.fromkeys(made["networks"], NetworkFacts(active=True, bridge="virbr1"))
    host = replace(
        host,
        bridges=list(made["bridges"]),
        links=list(made["links"]),
        networks=networks,
        profiles=replace(host.profiles, nic={name: profile(**has)}),
    )
    answer = brief.build_brief(host, brief.build_query([required], Policy()))
    said = fit.reasons(brief.to_host_info(answer, []), required)
    assert [one for one in said if one.startswith("no ")] == []


@pytest.mark.parametrize(
    "said",
    [
        {"type": "network"},
        {"type": "direct"},
        {"portgroup": "pg"},
        {"type": "network", "mtu": 9000},
    ],
)
def test_a_nic_of_a_profile_that_a_call_says_in_part_is_not_refused_before_the_host_is_asked(said):
    required = spec.requirements_from_master("v", 1, 64, {"interfaces": [{"name": "e", **said}]})

    assert [name for name, _said in required.called] == ["e"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"type": "network"}, "type network has no source; say which network"),
        ({"portgroup": "pg"}, "portgroup is for network, not for type bridge"),
    ],
)
def test_without_a_profile_a_nic_that_is_said_in_part_is_refused(said, why):
    call = {"nic": None, "interfaces": [{"name": "eth1", **said}]}

    with pytest.raises(BadArgument, match=re.escape(why)):
        spec.requirements_from_master("v", 1, 64, call)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"type": "netwrok"}, "type 'netwrok'"),
        ({"type": "user", "vlan": 7}, "not for type user"),
        ({"mode": "x"}, "'x'; one of"),
        ({"sorce": "x"}, "sorce"),
    ],
)
def test_what_is_wrong_whatever_the_profile_says_is_refused_on_the_master(said, why):
    with pytest.raises(BadArgument, match=re.escape(why)):
        spec.requirements_from_master("v", 1, 64, {"interfaces": [{"name": "eth0", **said}]})


def test_without_a_profile_the_call_says_all():
    assert needed([{"name": "eth0", "vlan": 7}], None, nic=None) == ({"br0"}, set(), set(), True)


def test_a_host_is_not_refused_for_a_bridge_that_no_nic_is_on_and_is_for_vlans_it_cannot_tag():
    host = told.info(json.loads(FLEET.read_text())["hyper1"])
    profiles = replace(host.profiles, nic={"default": USUAL})
    host = replace(host, bridges=[], profiles=profiles)

    def why(nic):
        required = spec.requirements_from_master("v", 1, 64, {"interfaces": [nic]})
        tags = generation.reasons(generation.for_host(host), required)
        return [one for one in {*fit.reasons(host, required), *tags} if "br0" in one or VLAN in one]

    assert why({"name": "eth0", "network": "default"}) == []
    assert any(VLAN in one for one in why({"name": "eth0", "vlan": 7}))
