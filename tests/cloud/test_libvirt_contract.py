"""libvirt keeps the contract by which the swarm's stand-in for it is judged."""

import json

import pytest
from labkit.settings import CHECKOUT

CONTRACT = CHECKOUT / "tests/swarm/contract.py"
PYTHON = "/opt/saltstack/salt/bin/python3"


@pytest.mark.parametrize("host", ["hyper1", "hyper3"])
def test_a_real_libvirtd_keeps_the_contract_of_the_stand_in(cloud, host):
    script = cloud.folder(host) / "run/contract.py"
    script.write_text(CONTRACT.read_text())
    try:
        said = json.loads(cloud.sh(host, f"{PYTHON} /run/contract.py qemu:///system"))
    finally:
        script.unlink()

    assert said["wrong"] == {}
    assert said["asked"] > 10
