"""What the documentation of Salt 3006's states shows applies to QEMU, and changes nothing again."""

import olddocs
import pytest
from statekit import Side

pytestmark = [pytest.mark.both_salts]
FOLDER = "/srv/olddocs"
IMAGE = f"{FOLDER}.qcow2"
OPTIONS = {
    "nic": {"default": [], "prod": {"eth0": {"type": "network", "source": "admin"}}},
    "disk": {"prod": [{"name": "system", "size": 8}]},
    "capacity": {"memory_mib": 10**5, "disk_mib": 10**6, "vcpus": 100},
}
# What libvirt takes on QEMU's driver: the rest is of KVM, of other drivers, or a slip there.
TUNING = {
    key: one for key, one in olddocs.CPU["tuning"].items() if key not in ("cachetune", "memorytune")
}
ON_QEMU = {
    "a tuned CPU": {"cpu": {**olddocs.TUNED, "tuning": {**TUNING, "vcpusched": olddocs.SCHED}}},
    "memory": {"mem": olddocs.but(olddocs.HUGE, min_guarantee=None, max=None, slots=None)},
}
# No host of the lab has a card with SR-IOV, and of others libvirt takes no functions.
ELSEWHERE = ("functions of PCI",)
SHOWN = [one for one in olddocs.DOCUMENTED if one[0] not in ELSEWHERE]
# What stands there for a choice of the site's, where a host of the lab has no other.
HERE = {"listen": {"type": "address", "address": "127.0.0.1"}}
PLACES = f"""
qemu-img create -q -f qcow2 {IMAGE} 8M; mkdir -p {FOLDER}-pool
virsh pool-define-as default dir --target {FOLDER}-pool; virsh pool-start default
echo "<network><name>admin</name></network>" >/srv/admin.xml
virsh net-define /srv/admin.xml; virsh net-start admin
"""
CLEAR = f"""
virsh destroy documented; virsh undefine documented --nvram
for net in documented admin; do virsh net-destroy $net; virsh net-undefine $net; done
for pool in documented default; do virsh pool-destroy $pool; virsh pool-undefine $pool; done
rm -rf {FOLDER} {FOLDER}-pool {IMAGE} /srv/admin.xml /srv/stateside.py
"""


def on_host(given):
    """Return what is asked for as it is on a host of the lab: its image, its own address."""
    if not isinstance(given, dict):
        return IMAGE if given == "IMAGE" else given
    out = {key: on_host(one) for key, one in given.items()}
    if "disks" in out:
        out["disks"] = [on_host(disk) for disk in out["disks"]]
    return out | ({"listen": HERE["listen"]} if "listen" in out else {})


@pytest.fixture(scope="module")
def host(cloud):
    """A host that has what the documentation takes for granted."""
    cloud.purge_all()
    cloud.sh("hyper1", f"{{ {CLEAR} {PLACES} }} >/dev/null 2>&1; true")
    made = Side(cloud, FOLDER, **OPTIONS)
    yield made
    made.close()
    cloud.sh("hyper1", f"{{ {CLEAR} }} >/dev/null 2>&1; true")
    cloud.purge_all()


@pytest.fixture
def states(host, cloud):
    """A function that applies a state to ``documented``, which is gone before and afterwards."""
    gone = "virsh destroy documented; virsh undefine documented --nvram; virsh net-destroy "
    gone += "documented; virsh net-undefine documented; virsh pool-undefine documented; "
    gone += f"rm -rf {FOLDER}/images/* {FOLDER}-pool/*; virsh pool-refresh default"

    def apply(state, given, *, test):
        return host.apply(state, {"name": "documented", **on_host(given)}, test)

    yield apply
    cloud.sh("hyper1", f"{{ {gone}; }} >/dev/null 2>&1; true")


@pytest.mark.parametrize(("what", "state", "given"), SHOWN, ids=[one[0] for one in SHOWN])
def test_what_it_shows_applies_to_qemu_and_changes_nothing_again(states, what, state, given):
    given = {**given, **ON_QEMU.get(what, {})}
    said = states(state, given, test=True)
    done = states(state, given, test=False)
    again = states(state, given, test=False)
    would = states(state, given, test=True)

    assert (said["result"], done["result"]) == (None, True), (said, done)
    assert said["changes"] == done["changes"] != {}
    for one in (again, would):
        assert (one["result"], one["changes"]) == (True, {}), one
