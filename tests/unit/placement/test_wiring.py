"""What NICs need of a host: by a call, and by the profile that the host has of that name."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import told
from saltvirt import spec
from saltvirt.placement import fit, generation, wiring
from saltvirt.placement.answers import NicPlace, NicProfile

FLEET = Path(__file__).parents[2] / "data/fleets/three.json"
BRIDGED = NicPlace(need="bridges", on="br0", tagged=False)
VLAN = "cannot tag VLANs on a Linux bridge"


def profile(**nics):
    """Return a profile as a host of this release says it."""
    names = {kind: sorted(p.on for p in nics.values() if p.need == kind) for kind in KINDS}
    tagged = any(one.tagged and one.need == "bridges" for one in nics.values())
    return NicProfile(**names, bridge_vlans=tagged, nics=nics)


KINDS = ("bridges", "networks", "links")
USUAL = profile(eth0=BRIDGED)
NATTED = profile(eth0=NicPlace(need="networks", on="default", tagged=False))
SWITCHED = {"virtualport": {"type": "openvswitch"}}


def needed(interfaces, found, nic="default"):
    """Return what a call needs of a host that has this profile."""
    required = spec.requirements_from_master("v", 1, 64, {"nic": nic, "interfaces": interfaces})
    out = wiring.of(required, found)
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
        ({"name": "eth0", "vlan": 7, **SWITCHED}, USUAL, (set(), set(), set(), False)),
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


def test_without_a_profile_the_call_says_all():
    assert needed([{"name": "eth0", "vlan": 7}], None, nic=None) == ({"br0"}, set(), set(), True)


def test_a_host_is_not_refused_for_a_bridge_that_no_nic_is_on_and_is_for_vlans_it_cannot_tag():
    host = told.info(json.loads(FLEET.read_text())["hyper1"])
    profiles = replace(host.profiles, nic={"default": USUAL})
    host = replace(host, bridges=[], profiles=profiles)

    def why(nic):
        required = spec.requirements_from_master("v", 1, 64, {"interfaces": [nic]})
        tags = generation.reasons(generation.of(host), required)
        return [one for one in {*fit.reasons(host, required), *tags} if "br0" in one or VLAN in one]

    assert why({"name": "eth0", "network": "default"}) == []
    assert any(VLAN in one for one in why({"name": "eth0", "vlan": 7}))
