"""libvirt keeps the contract by which the swarm's stand-in for it is judged."""

import json

import pytest
from labkit.settings import CHECKOUT
from saltvirt.xml import parse

CONTRACT = CHECKOUT / "tests/swarm/contract.py"
PYTHON = "/opt/saltstack/salt/bin/python3"


@pytest.mark.parametrize(
    ("host", "other"), [("hyper1", "qemu+tls://hyper2/system"), ("hyper3", "")]
)
def test_a_real_libvirtd_keeps_the_contract_of_the_stand_in(cloud, host, other):
    script = cloud.folder(host) / "run/contract.py"
    script.write_text(CONTRACT.read_text())
    try:
        said = json.loads(cloud.sh(host, f"{PYTHON} /run/contract.py qemu:///system {other}"))
    finally:
        script.unlink()

    assert said["wrong"] == {}
    assert said["asked"] > 10


@pytest.mark.parametrize("host", ["hyper1", "hyper3"])
def test_a_feature_that_no_guest_can_have_is_not_said_to_be_there(cloud, host):
    text = cloud.sh(host, "virsh domcapabilities --virttype qemu")
    features = parse(text).iterfind("cpu/mode[@name='host-model']/feature[@policy='disable']")
    disabled = {one.get("name") for one in features}

    said = cloud.local(host, "virt.host_info")["cpu"]["features"]["qemu"]

    assert disabled, "its model has something that QEMU itself does not do"
    assert disabled.isdisjoint(said) and len(said) > 10
