"""cloud-init of a real guest: several NICs, gateways outside, disks, and lists of vendor data."""

import json

import pytest
from cloudkit import wait

pytestmark = [pytest.mark.nightly, pytest.mark.second]
DEBIAN = "salt://images/debian-minion.qcow2"
SHOW = "ip route; ip -6 route; cat /proc/partitions; cat /run/told; echo it is over"
VENDOR = {
    "bootcmd": [["sh", "-c", "echo by-bootcmd >>/run/told"]],
    "runcmd": [["sh", "-c", "echo by-vendor >>/run/told"]],
}
NICS = [
    {
        "name": "eth0",
        "bridge": "br0",
        "guest": {
            "addresses": ["10.77.200.9/32", "fd00:88::9/64"],
            "gateway": ["10.77.0.1", "fd00:99::1"],
        },
    },
    {"name": "lan", "bridge": "br0", "guest": {"addresses": ["10.99.0.4/24"]}},
]


@pytest.fixture
def guest(clean):
    """The console of a guest that has booted."""
    with clean.pillar("hyper1", {"virt": {"seed": {"vendor_data": VENDOR}}}):
        done = clean.run(
            *("virt.init", "nets1", "1", "1024", DEBIAN, "host=hyper1", "wait=False"),
            f"interfaces={json.dumps(NICS)}",
            f"user_data={json.dumps({'runcmd': [['sh', '-c', f'({SHOW}) >/dev/console']]})}",
            f"disks={json.dumps([{'name': 'data', 'model': 'scsi', 'size': 64}])}",
        )
        assert done.code == 0, done.out + done.err
    said = lambda: "it is over" in clean.console("hyper1", "nets1")  # noqa: E731
    wait("the end of cloud-init", said, timeout_s=900)
    yield clean.console("hyper1", "nets1")
    assert clean.run("virt.purge", "nets1").code == 0


def test_a_guest_has_the_routes_disks_and_lists_that_it_was_given(guest):
    assert "default via 10.77.0.1 dev eth0" in guest
    assert "default via fd00:99::1 dev eth0" in guest
    assert "10.99.0.0/24 dev lan" in guest
    assert "sda" in guest, "a disk at a controller that the guest has a driver for"
    assert "by-bootcmd" in guest and "by-vendor" in guest
