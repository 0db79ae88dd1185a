"""What Uyuni's states ask of ``virt`` before they start a VM, on a real libvirtd."""

import shutil

import pytest
from labkit.settings import CHECKOUT
from statekit import Side

pytestmark = [pytest.mark.both_salts]
FOLDER = "/srv/uyuni"
# With the calls of Uyuni's virt_utils.
STATES = CHECKOUT / "tests/compat/thirdparty/_states/resources.py"
PLACES = f"""
mkdir -p {FOLDER}-pool; virsh pool-define-as vms dir --target {FOLDER}-pool; virsh pool-start vms
echo "<network><name>inner</name></network>" >/srv/inner.xml; virsh net-define /srv/inner.xml
virsh net-start inner
"""
CLEAR = f"""
virsh destroy web1; virsh undefine web1; virsh net-destroy inner; virsh net-undefine inner
virsh pool-destroy vms; virsh pool-undefine vms
rm -rf {FOLDER} {FOLDER}.d {FOLDER}-pool /srv/inner.xml /srv/stateside.py
"""
# As its create-vm.sls and update-vm.sls have it.
VM = {
    "cpu": 1,
    "mem": 64,
    "os_type": "hvm",
    "arch": "x86_64",
    "vm_type": "qemu",
    "disks": [
        {"name": "system", "model": "virtio", "format": "qcow2", "pool": "vms", "size": 8},
        {"name": "cd", "model": "ide", "device": "cdrom", "source_file": None},
    ],
    "interfaces": [{"name": "eth0", "type": "network", "source": "inner", "mac": None}],
    "graphics": {"type": "vnc"},
    "seed": False,
    "boot_dev": "hd",
}


@pytest.fixture
def host(clean):
    """A host with a pool, a network and a state that is not ours; nothing is left of it."""
    folder = clean.folder("hyper1") / f"{FOLDER.lstrip('/')}.d/_states"
    clean.sh("hyper1", f"{{ {CLEAR} {PLACES} }} >/dev/null 2>&1; true")
    folder.mkdir(parents=True)
    shutil.copy(STATES, folder)
    made = Side(clean, FOLDER)
    yield made
    made.close()
    clean.sh("hyper1", f"{{ {CLEAR} }} >/dev/null 2>&1; true")


def test_a_vm_is_started_with_all_that_it_lies_on(host, clean):
    for test in (True, False):
        made = host.apply("running", {"name": "web1", **VM}, test)
        assert made["changes"] == {"web1": {"definition": True, "started": True}}, made
    again = host.apply("running", {"name": "web1", **VM}, False)
    assert (again["result"], again["changes"]) == (True, {}), again
    host.apply("powered_off", {"name": "web1"}, False)
    clean.sh("hyper1", "virsh net-destroy inner; virsh pool-destroy vms")

    would = host.apply("started", {"name": "web1"}, True)
    done = host.apply("started", {"name": "web1"}, False)
    again = host.apply("started", {"name": "web1"}, False)

    started = {"networks": {"inner": "started"}, "pools": {"vms": "started"}}
    assert would["changes"] == done["changes"] == started, (would, done)
    assert again["changes"] == {"networks": {}, "pools": {"vms": "refreshed"}}, again
    assert host.apply("running", {"name": "web1"}, False)["changes"] == {"web1": {"started": True}}


def test_its_templates_ask_for_what_is_not_there_yet(host):
    assert host.apply("placed", {"name": "nowhere"}, False)["comment"] == "None None"
    assert host.apply("placed", {"name": "vms"}, False)["comment"] == "running None"
    assert host.apply("placed", {"name": "inner"}, False)["comment"] == "None 1"
