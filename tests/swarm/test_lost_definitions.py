"""``virt.doctor fix=True`` removes no disk for the only reason that no host has its VM."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import SHORT, swarm_of
from swarmkit import conf
from swarmkit.settings import OWN, Spec
from test_load import IMAGE, IMAGES

GIVEN = ("seed=False", "wait=False", "headroom=False")
FORGET = (
    "import json,sys; p=sys.argv[1]; d=json.load(open(p)); gone=d['domains'].pop(sys.argv[2]);"
    " json.dump(d, open(p,'w')); print(json.dumps(gone))"
)


@pytest.fixture(scope="module")
def swarm():
    """Two hosts without VMs."""
    with swarm_of(Spec(hosts=2, vms=0, memory_mib=2048, options=SHORT), "losing") as made:
        made.sh('mkdir -p "$1"; qemu-img create -q -f qcow2 "$1/a.qcow2" 64M', IMAGES)
        yield made


@dataclass(frozen=True)
class Disk:
    """A VM's disk: as its host names it, and where the test finds it."""

    host: str
    path: str
    file: str


def disk_of(swarm, host, name):
    """Return a VM's disk on a host; each host sees its own folder under the same name."""
    (file,) = swarm.sh('find "$1" -name "$2_*"', f"{conf.HOSTS}/{host}/img", name).split()
    return Disk(host, f"{OWN}/img/{Path(file).name}", file)


def is_there(swarm, disk):
    """Return whether a disk is where it was."""
    return swarm.sh('ls "$1" 2>/dev/null || true', disk.file).strip() == disk.file


def forget(swarm, host, name):
    """Have a host's libvirt forget a VM, as when an older root is restored."""
    path = f"{conf.HOSTS}/{host}/libvirt/domains.json"
    return json.loads(swarm.sh('python3 -c "$1" "$2" "$3"', FORGET, path, name))


def stays(swarm, disk):
    """Have the doctor name a file that is old enough, and leave it; return the finding."""
    swarm.sh('touch -d "2 hours ago" "$1"', disk.file)
    done = swarm.run("virt.doctor", "fix=True")
    assert done.code == 1
    found = {(one["where"], one["subject"]): one for one in done.data["findings"]}
    assert (disk.host, disk.path) in found
    assert is_there(swarm, disk)
    return found[disk.host, disk.path]


def test_a_disk_whose_definition_is_lost_can_be_put_into_the_trash_and_back(swarm):
    done = swarm.run("virt.init", "web1", 1, 32, IMAGE, *GIVEN, "start=False", "host=h0000")
    assert done.code == 0
    disk = disk_of(swarm, "h0000", "web1")
    forget(swarm, "h0000", "web1")

    fix = stays(swarm, disk)["fix"]

    assert f"salt h0000 virt.trash_put {disk.path}" in fix
    put = swarm.salt("h0000", "virt.trash_put", disk.path).data["h0000"]
    assert not is_there(swarm, disk)
    swarm.run("virt.trash_restore", "h0000", put["entry"])
    assert is_there(swarm, disk)
    swarm.salt("h0000", "virt.trash_put", disk.path)


def test_the_only_disk_of_a_vm_that_is_defined_elsewhere_stays(swarm):
    """Its disk is still to be copied there."""
    raw = ("disks=[{name: data, size: 16, format: raw}]", "disk=null")
    done = swarm.run("virt.init", "web2", 1, 32, *raw, *GIVEN, "start=False", "host=h0000")
    assert done.code == 0, done.out
    disk = disk_of(swarm, "h0000", "web2")
    xml = swarm.salt("h0000", "virt.get_xml", "web2").data["h0000"]
    forget(swarm, "h0000", "web2")
    swarm.salt("h0001", "virt.define_xml_str", xml)

    stays(swarm, disk)

    forget(swarm, "h0001", "web2")
    swarm.salt("h0000", "virt.trash_put", disk.path)


def test_the_newest_disk_of_a_vm_that_was_not_kept_on_its_target_stays(swarm):
    """It moved with persistent=False, and then its new host lost its power."""
    assert swarm.run("virt.init", "web3", 1, 32, IMAGE, *GIVEN, "host=h0000").code == 0
    done = swarm.run("virt.migrate", "web3", "h0001", "persistent=False")
    assert done.code == 0, done.out
    newest = disk_of(swarm, "h0001", "web3")
    forget(swarm, "h0001", "web3")

    stays(swarm, newest)
