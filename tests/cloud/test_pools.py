"""Pools, volumes and secrets on a hypervisor's own libvirt."""

import json

import pytest

SOURCE = {
    "hosts": ["san1:3260"],
    "devices": ["iqn.2013-06.com.example:x"],
    "auth": {"username": "u", "password": "hush-hush"},
}

VM = (
    "<domain type='qemu'><name>v1</name><memory>65536</memory><os><type>hvm</type></os><devices>"
    "<disk type='volume' device='disk'><driver name='qemu' type='qcow2'/>"
    "<source pool='p1' volume='a.qcow2'/><target dev='vda' bus='virtio'/></disk></devices></domain>"
)


def applied(cloud, state, name, **given):
    """Apply a state with test=True, for real and once more; return its three answers."""
    words = [f"{key}={json.dumps(value)}" for key, value in given.items()]
    out = []
    for more in (["test=True"], [], []):
        done = cloud.call("hyper1", "state.single", f"virt.{state}", name, *words, *more)
        out.append(next(iter(done.data["local"].values())))
    return out


@pytest.fixture
def ground(clean):
    """A hypervisor without the pools and files of these tests."""
    yield clean
    clean.sh(
        "hyper1",
        "for pool in p1 san; do virsh pool-destroy $pool; virsh pool-undefine $pool; done; "
        "rm -rf /srv/p1 /srv/p2 /srv/part /srv/back; true",
    )


@pytest.mark.second_nightly
def test_a_pool_is_defined_updated_and_purged(ground):
    would, done, again = applied(ground, "pool_running", "p1", target="/srv/p1")
    assert (
        would["changes"] == done["changes"] == {"p1": "Pool defined, marked for autostart, started"}
    )
    assert (would["result"], done["result"], again["changes"]) == (None, True, {})

    mode = {"mode": "0750"}
    given = {"ptype": "dir", "target": "/srv/p2", "permissions": mode}
    would, done, again = applied(ground, "pool_running", "p1", **given)
    assert would["changes"] == done["changes"] == {"p1": "Pool updated, built, restarted"}
    assert again["changes"] == {}, "what libvirt found in the folder is no difference"
    assert ground.sh("hyper1", "stat -c %a /srv/p2").strip() == "750"

    ground.local("hyper1", "virt.volume_define", "p1", "a.qcow2", "8", "format=qcow2")
    would, done, again = applied(ground, "pool_deleted", "p1", purge=True)
    assert would["changes"] == done["changes"]
    assert done["changes"]["deleted_volumes"] == ["a.qcow2"]
    assert again["changes"] == {} and "p2" not in ground.sh("hyper1", "ls /srv").split()


def test_a_pool_that_cannot_be_restarted_goes_on_as_it_was(ground):
    applied(ground, "pool_running", "p1", target="/srv/p1")
    ground.sh("hyper1", "touch /srv/part")

    answers = applied(ground, "pool_running", "p1", ptype="dir", target="/srv/part")

    assert answers[1]["result"] is False and "Not a directory" in answers[1]["comment"]
    info = ground.local("hyper1", "virt.pool_info", "p1")["p1"]
    assert (info["state"], info["target_path"]) == ("running", "/srv/p1")


def test_a_password_is_a_secret_of_libvirt_and_is_seen_nowhere(ground):
    given = {"ptype": "iscsi", "target": "/dev/disk/by-path", "source": SOURCE}
    _would, done, again = applied(ground, "pool_defined", "san", **given)

    assert done["result"] is True and again["changes"] == {}
    assert "pool_san" in ground.sh("hyper1", "virsh -q secret-list")
    assert "hush-hush" not in ground.sh("hyper1", "virsh pool-dumpxml san")
    assert "hush-hush" not in json.dumps([done, again])
    assert ground.local("hyper1", "virt.pool_undefine", "san") is True
    assert "pool_san" not in ground.sh("hyper1", "virsh -q secret-list")


def test_what_is_in_a_volume_comes_back_as_it_was(ground):
    applied(ground, "pool_running", "p1", target="/srv/p1")
    ground.sh("hyper1", "head -c 3000000 /dev/urandom > /srv/part; truncate -s 4M /srv/part")
    for sparse in ("sparse=False", "sparse=True"):
        ground.local("hyper1", "virt.volume_define", "p1", "a", "4", "format=raw")
        ground.local("hyper1", "virt.volume_upload", "p1", "a", "/srv/part", sparse)
        ground.local("hyper1", "virt.volume_download", "p1", "a", "/srv/back", sparse)
        ground.sh("hyper1", "cmp /srv/part /srv/back && rm /srv/back")
        ground.local("hyper1", "virt.volume_delete", "p1", "a")


def test_a_vm_is_purged_with_its_volume(ground):
    applied(ground, "pool_running", "p1", target="/srv/p1")
    ground.local("hyper1", "virt.volume_define", "p1", "a.qcow2", "8", "format=qcow2")
    ground.local("hyper1", "virt.define_xml_str", VM)

    infos = ground.local("hyper1", "virt.volume_infos", "p1")
    assert infos["p1"]["a.qcow2"]["used_by"] == ["v1"]
    assert ground.local("hyper1", "virt.purge", "v1") is True
    assert ground.local("hyper1", "virt.pool_list_volumes", "p1") == []
