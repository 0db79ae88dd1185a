"""virt.update on QEMU's driver: what a running VM gets at once, and what waits for a restart."""

import json

import pytest

pytestmark = pytest.mark.second

IDLE = {
    "definition": False,
    "disk": {"attached": [], "detached": [], "updated": []},
    "interface": {"attached": [], "detached": []},
}
NAT = {"name": "eth9", "type": "network", "source": "default", "mac": "52:54:00:aa:bb:01"}


@pytest.fixture
def update(cloud, vm):
    """
    Return a function that updates the VM, and holds that call to its contract.

    A test says what is done then, and a second call does nothing.
    """

    def call(**given):
        words = [f"{key}={json.dumps(value)}" for key, value in given.items()]
        said = cloud.local("hyper1", "virt.update", vm, *words, "test=True")
        done = cloud.local("hyper1", "virt.update", vm, *words)
        assert bool(said.pop("diff", [])) == bool(done["definition"])
        assert said == done
        assert cloud.local("hyper1", "virt.update", vm, *words) == IDLE
        return done

    return call


def xml(cloud, *words):
    """Return the XML of the VM as virsh has it."""
    return cloud.sh("hyper1", f"virsh dumpxml t1 {' '.join(words)}")


def test_disks_come_grow_and_go_while_the_vm_runs(cloud, update):
    both = [{"name": "system"}, {"name": "data", "size": 8}]

    added = update(disks=both)
    assert (added["definition"], len(added["disk"]["attached"])) == (True, 1)
    assert "restart" not in added and "errors" not in added
    for flag in ("", "--inactive"):
        assert "/srv/salt-images/t1_data.qcow2" in xml(cloud, flag)

    grown = update(disks=[{"name": "system"}, {"name": "data", "size": 16}])
    assert len(grown["disk"]["updated"]) == 1
    assert "Capacity:       16777216" in cloud.sh("hyper1", "virsh domblkinfo t1 vdb")

    gone = update(disks=[{"name": "system"}], detach=True)
    assert len(gone["disk"]["detached"]) == 1
    assert "t1_data" not in xml(cloud) + xml(cloud, "--inactive")
    cloud.sh("hyper1", "rm /srv/salt-images/t1_data.qcow2")


def test_nics_come_and_go_while_the_vm_runs(cloud, update):
    cloud.sh("hyper1", "virsh net-start default || true")
    added = update(nic_profile="default", interfaces=[NAT])
    assert len(added["interface"]["attached"]) == 1
    assert "52:54:00:aa:bb:01" in xml(cloud)

    gone = update(nic_profile="default", detach=True)
    assert len(gone["interface"]["detached"]) == 1
    assert "52:54:00:aa:bb:01" not in xml(cloud) + xml(cloud, "--inactive")


def test_memory_shrinks_at_once_and_more_than_it_has_waits(cloud, update):
    assert update(mem=64)["mem"] is True
    grown = update(mem=128, cpu=2)
    assert grown["restart"] == ["cpu", "mem"]
    assert "mem" not in grown and "cpu" not in grown
    assert "<vcpu placement='static'>2<" in xml(cloud, "--inactive")
    assert "<memory unit='KiB'>131072<" in xml(cloud, "--inactive")


def test_a_drives_medium_is_changed_while_the_vm_runs(cloud, vm, update):
    cloud.sh("hyper1", "for one in a b; do truncate -s 1M /srv/$one.iso; done")
    drive = {"name": "cd", "device": "cdrom"}
    disks = [{"name": "system"}, {**drive, "source_file": "/srv/a.iso"}]

    # An IDE drive comes with the next start.
    words = [f"disks={json.dumps(disks)}"]
    assert cloud.local("hyper1", "virt.update", vm, *words)["restart"] == ["disks"]
    cloud.local("hyper1", "virt.stop", vm)
    cloud.local("hyper1", "virt.start", vm)
    assert cloud.local("hyper1", "virt.update", vm, *words) == IDLE

    changed = update(disks=[disks[0], {**drive, "source_file": "/srv/b.iso"}])
    assert len(changed["disk"]["updated"]) == 1
    assert "/srv/b.iso" in xml(cloud)
    update(disks=[disks[0], drive])
    assert ".iso" not in xml(cloud) + xml(cloud, "--inactive")


def test_what_waits_is_there_after_a_restart_and_nothing_is_left_to_do(cloud, vm, update):
    given = {
        "graphics": {"type": "vnc"},
        "boot_dev": "network hd",
        "clock": {"timers": {"hpet": {"present": False}}},
        "serials": [{"type": "tcp", "port": 22223}],
        "stop_on_reboot": True,
        "cpu": {"maximum": 2, "current": 1, "tuning": {"shares": 512}},
        "mem": {"soft_limit": "900m"},
    }
    assert update(**given)["restart"] == sorted(given)
    cloud.local("hyper1", "virt.stop", vm)
    cloud.local("hyper1", "virt.start", vm)
    assert update(**given) == IDLE
    assert "type='vnc'" in xml(cloud) and "<soft_limit unit='KiB'>921600<" in xml(cloud)


def test_uyunis_second_step(cloud, vm):
    cloud.sh("hyper1", "touch /srv/vmlinuz /srv/initrd")
    first = {"kernel": "/srv/vmlinuz", "initrd": "/srv/initrd", "cmdline": "autoyast=1"}
    cloud.local("hyper1", "virt.update", vm, f"boot={json.dumps(first)}", "stop_on_reboot=True")
    assert "/srv/vmlinuz" in xml(cloud, "--inactive")

    second = ["boot={kernel: null, initrd: null, cmdline: null}", "live=False"]
    done = cloud.local("hyper1", "virt.update", vm, *second, "stop_on_reboot=False")

    assert done["definition"] is True and done["restart"] == ["boot", "stop_on_reboot"]
    inactive = xml(cloud, "--inactive")
    assert "vmlinuz" not in inactive and "<on_reboot>restart" in inactive
    assert cloud.local("hyper1", "virt.update", vm, *second, "stop_on_reboot=False") == IDLE


def test_a_refused_definition_leaves_no_file(cloud, vm):
    given = [
        "disks=[{name: system}, {name: data, size: 8}]",
        "cpu={topology: {sockets: 3, cores: 1, threads: 1}}",
    ]
    answer = cloud.call("hyper1", "virt.update", vm, *given)

    assert answer.code != 0 and "topology" in answer.out + answer.err
    assert "t1_data" not in cloud.sh("hyper1", "ls /srv/salt-images") + xml(cloud, "--inactive")
