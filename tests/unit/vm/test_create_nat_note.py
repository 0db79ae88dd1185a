"""What a command says of the built-in profile of a network that only its host reaches."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import told
from saltvirt.placement.answers import NicPlace, NicProfile
from saltvirt.vm import spec
from saltvirt.vm.create.master import deploy

FLEET = Path(__file__).parents[2] / "data/fleets/three.json"
ETH0 = NicPlace(type="network", on="default", tagged=False, switched=False)


@pytest.mark.parametrize(
    ("nic", "is_told"),
    [
        ([], True),
        ([{"name": "eth1", "source": "br7"}], True),
        ([{"name": "eth0", "bridge": "br7"}], False),
    ],
)
def test_it_is_said_of_a_vm_that_is_on_that_network(nic, is_told):
    host = told.info(json.loads(FLEET.read_text())["hyper1"])
    nat = NicProfile(
        bridges=[], networks=["default"], links=[], bridge_vlans=False, nics={"eth0": ETH0}
    )
    host = replace(host, profiles=replace(host.profiles, nic={"nat": nat}))
    required = spec.requirements_from_master("v", 1, 64, {"nic": "nat", "interfaces": nic})
    said = []

    deploy.tell_of_nat(
        SimpleNamespace(progress=lambda stage, **_: said.append(stage)), required, host
    )

    assert said == (["Network"] if is_told else [])
