"""Disks in pools that are no folders: as volumes, devices and network disks, as Salt 3006 did."""

import subprocess
from dataclasses import replace

import onrecord
import pytest
from saltvirt.core.errors import BadArgument, SeedError, StorageError
from saltvirt.core.journal import records
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import lifecycle
from saltvirt.libvirt.storage import diskvolumes, volumes
from saltvirt.vm.create.host import create
from saltvirt.vm.purge.host import purge
from saltvirt.vm.recovery.host import unfinished
from saltvirt.vm.update.host import apply, request
from saltvirt.xml import parse
from saltvirt.xml.domain import disk

UUID = "3c9a1d3e-6d5a-4d31-9f0e-2b1c4c1d0a77"
AUTH = f"<auth type='ceph' username='u'><secret uuid='{UUID}'/></auth>"
SOURCES = {
    "logical": "<name>vg</name><format type='lvm2'/>",
    "disk": "<device path='/dev/sda'/><format type='gpt'/>",
    "zfs": "<name>tank</name>",
    "iscsi": "<host name='san'/><device path='iqn.2013-06.com.example:x'/>",
    "scsi": "<adapter name='host0'/>",
    "mpath": "",
    "rbd": f"<host name='mon' port='6789'/><name>vms</name>{AUTH}",
    "gluster": "<host name='g1'/><dir path='/'/><name>vol</name>",
}
# What libvirt needs a folder for.
TARGETS = ("logical", "disk", "zfs", "iscsi", "scsi", "mpath")
# What `_gen_xml` of 3006.25's modules/virt.py writes for them, and what it wrote wrong: libvirt
# does not take volumes of mpath.
VOLUME = {"pool": "p", "volume": "web1_data"}
WRITTEN = {
    "logical": ("volume", VOLUME),
    "disk": ("volume", {"pool": "p", "volume": "sda1"}),
    "zfs": ("volume", VOLUME),
    "rbd": ("network", {"protocol": "rbd", "name": "vms/web1_data"}),
}
PLAIN = {"image": None, "disk": None, "pub_key": None, "priv_key": None}


@pytest.fixture
def pooled(hypervisor):
    """A function that makes a pool ``p`` of a type; what is in it is gone at the end."""
    with hypervisor.libvirt() as conn:

        def make(kind, *listed):
            target = f"<target><path>{hypervisor.root}/dev</path></target>"
            pool = conn.storagePoolDefineXML(
                f"<pool type='{kind}'><name>p</name><source>{SOURCES[kind]}</source>"
                f"{target if kind in TARGETS else ''}</pool>"
            )
            pool.create()
            for name in listed:
                text = f"<volume><name>{name}</name><capacity>8388608</capacity></volume>"
                pool.createXML(text)
            hypervisor.conn = conn
            return hypervisor

        yield make
        for name in conn.listStoragePools():
            if name == "p":
                pool = conn.storagePoolLookupByName("p")
                for one in pool.listAllVolumes():
                    one.delete()
                pool.destroy()
                pool.undefine()


def disks(hypervisor, name="web1"):
    """Return the disks of a VM."""
    root = parse((hypervisor.definitions / f"{name}.xml").read_text())
    return [disk.read(one) for one in root.iterfind("devices/disk")]


def listed(hypervisor):
    """Return the volumes of the pool."""
    return sorted(volumes.names(hypervisor.conn, "p"))


def asked(**given):
    """Return a call's disk in the pool."""
    return {**PLAIN, "disks": [{"name": "data", "size": 8, "pool": "p", **given}]}


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_new_volume_is_made_and_written_as_3006_did(pooled, kind):
    host = pooled(kind)
    kind_, source = WRITTEN[kind]

    host.init(**asked())

    (one,) = disks(host)
    assert (one.type, one.source, one.format) == (kind_, source, "raw")
    (name,) = listed(host)
    assert name == source.get("volume", "web1_data")
    assert volumes.find(host.conn, "p", name).capacity == 8 << 20
    if kind == "rbd":
        assert one.hosts == ({"name": "mon", "port": "6789"},)
        assert one.auth == disk.Auth(username="u", secret={"type": "ceph", "uuid": UUID})
    assert host.open_records() == [] and host.files() == []
    purge.purge(host.conn, host.settings, "web1")
    assert listed(host) == []


THERE = {
    **{kind: ("volume", VOLUME) for kind in ("logical", "zfs", "iscsi", "scsi")},
    "rbd": WRITTEN["rbd"],
    "mpath": ("file", None),
}


@pytest.mark.parametrize("kind", THERE)
def test_a_volume_of_the_disks_name_is_the_disk(pooled, kind):
    host = pooled(kind, "web1_data")
    kind_, source = THERE[kind]

    shown = create.show(host.context, host.deployment(**asked(size=64)))
    host.init(**asked(size=64))

    assert (shown["disks"][0]["made"], shown["disks"][0]["path"]) == ("existing", "p/web1_data")
    (one,) = disks(host)
    if kind == "mpath":
        assert one.path == f"{host.root}/dev/web1_data"
    else:
        assert (one.type, one.source, one.format) == (kind_, source, "raw")
    assert volumes.find(host.conn, "p", "web1_data").capacity == 8 << 20


def test_a_volume_of_another_name_is_given_as_a_file_is(pooled):
    host = pooled("iscsi", "unit:0:0:1")

    host.init(**asked(source_file="unit:0:0:1"))

    assert disks(host)[0].source == {"pool": "p", "volume": "unit:0:0:1"}
    with pytest.raises(StorageError, match="no volume 'unit:0:0:2'; it has: unit:0:0:1"):
        host.init("web2", **asked(source_file="unit:0:0:2"))


REFUSED = [
    ("iscsi", {}, StorageError, "libvirt makes none in a pool of type iscsi.*it has: other"),
    ("gluster", {}, StorageError, "libvirt makes none in a pool of type gluster"),
    ("rbd", {"format": "qcow2"}, StorageError, "are devices, and so raw, not qcow2"),
    ("rbd", {"backing_store_path": "/x"}, BadArgument, "backing store in pool 'p'"),
    ("logical", {"overlay_image": True}, BadArgument, "is no overlay"),
    ("logical", {"size": None}, BadArgument, "neither a size nor an image"),
]


@pytest.mark.parametrize(("kind", "given", "error", "why"), REFUSED)
def test_what_cannot_be_is_refused(pooled, kind, given, error, why):
    host = pooled(kind, "other")

    with pytest.raises(error, match=why):
        host.init(**asked(**given))
    assert (listed(host), host.domains(), host.open_records()) == (["other"], [], [])


def test_an_image_is_written_into_a_device(pooled):
    host = pooled("disk")
    image = host.root / "image.qcow2"
    subprocess.run(["qemu-io", "-c", "write -P 7 1M 64k", image], check=True, capture_output=True)
    # The device, which the test driver does not make.
    device = host.root / "dev" / "sda1"
    device.parent.mkdir()
    device.write_bytes(b"another's" * 1000 + bytes(1 << 20))
    with device.open("r+b") as handle:
        handle.truncate(8 << 20)

    host.init(**asked(image=str(image), format="qcow2", size=None), seed=False)

    subprocess.run(["qemu-img", "compare", "-f", "qcow2", "-F", "raw", image, device], check=True)
    assert disks(host)[0].format == "raw"


def test_an_image_is_not_written_into_ceph(pooled):
    host = pooled("rbd")
    with pytest.raises(BadArgument, match="make volume 'web1_data' of it first"):
        host.init(**asked(image=str(host.root / "image.qcow2")), seed=False)
    assert listed(host) == []


def test_a_partition_is_the_next_that_is_free(pooled):
    host = pooled("disk", "sda1", "sda3")
    two = [{"name": name, "size": 8, "pool": "p"} for name in ("a", "b")]

    host.init(**PLAIN, disks=two)

    assert [one.source["volume"] for one in disks(host)] == ["sda2", "sda4"]
    # The VM's partitions are its disks, though their names say nothing of it.
    call = request.from_call(host.settings, "web1", {**_UPDATE, "disks": two})
    assert not apply.is_changed(apply.update(host.context, replace(call, stop_on_reboot=None)))
    assert listed(host) == ["sda1", "sda2", "sda3", "sda4"]


def test_a_disk_that_names_no_pool_keeps_its_partition(pooled):
    host = pooled("disk")
    host.init(**PLAIN, disks=[{"name": "old", "size": 8}])
    host.settings = replace(host.settings, storagepool="p")
    two = [{"name": name, "size": 8} for name in ("new", "old")]
    for is_changed in (True, False):
        call = request.from_call(host.settings, "web1", {**_UPDATE, "disks": two})
        done = apply.update(host.context, replace(call, stop_on_reboot=None))
        assert apply.is_changed(done) is is_changed
    old = f"{host.settings.images}/web1_old.qcow2"
    assert [one.path for one in disks(host)] == [old, "p/sda1"]
    assert listed(host) == ["sda1"]


@pytest.mark.parametrize("kind", ["logical", "disk", "rbd"])
def test_with_3006s_defaults_a_disk_without_a_pool_is_a_file(pooled, kind):
    host = pooled(kind)
    host.settings = replace(host.settings, storagepool="p", compat="3006")
    host.init(**PLAIN, disks=[{"name": "data", "size": 8}])
    assert (listed(host), host.files()) == ([], ["web1_data.qcow2"])


_UPDATE = dict.fromkeys(
    (
        "cpu mem disk_profile nic_profile interfaces graphics boot numatune boot_dev "
        "hypervisor_features clock serials consoles stop_on_reboot host_devices autostart"
    ).split()
) | {"live": True, "test": False}


def test_an_update_makes_volumes_and_takes_them(pooled):
    host = pooled("logical", "web1_old")
    host.init(**PLAIN)
    names = [{"name": name, "size": 8, "pool": "p"} for name in ("old", "new")]

    for is_first in (True, False):
        call = request.from_call(host.settings, "web1", {**_UPDATE, "disks": names, "detach": True})
        done = apply.update(host.context, replace(call, stop_on_reboot=None))
        assert apply.is_changed(done) is is_first
    assert [one.source["volume"] for one in disks(host)] == ["web1_old", "web1_new"]
    assert listed(host) == ["web1_new", "web1_old"]


def test_what_is_another_vms_is_refused(pooled):
    host = pooled("logical", "a_b_c")
    call = {**PLAIN, "disks": [{"name": "b_c", "size": 8, "pool": "p"}]}
    place = reservations.folder(host.settings)
    with records.hold_record(place, "build", "a_b") as other:
        other.begin("t1", "making", **onrecord.build(taken=["p/a_b_c"]))
        with pytest.raises(StorageError, match="p/a_b_c is to be a file of VM 'a_b'"):
            host.init("a", **call)
        other.end()
    with records.hold_record(place, "purge", "a_b") as other:
        other.begin("t1", "removing", **onrecord.purge(volumes=[["p", "a_b_c", "n"]]))
        with pytest.raises(StorageError, match="p/a_b_c is a file of VM 'a_b', which is being pu"):
            host.init("a", **call)
        other.end()
    host.init("a_b", **PLAIN, disks=[{"name": "c", "size": 8, "pool": "p"}])
    with pytest.raises(StorageError, match="a_b_c is there already; .*: VM 'a_b' has it"):
        host.init("a", **call)
    assert listed(host) == ["a_b_c"]


def test_a_volume_that_may_be_a_vms_of_another_host_is_not_taken_by_its_name(pooled):
    host = pooled("rbd", "a_b_c")
    one = {"name": "b_c", "size": 8, "pool": "p"}
    with pytest.raises(StorageError, match="p/a_b_c .* of VM 'a_b' on another host"):
        host.init("a", **PLAIN, disks=[one])
    told = replace(host.context, is_ordered=True, hosts_without_names=("hyper2",))
    with pytest.raises(StorageError, match="p/a_b_c .* hyper2 may have a VM with it"):
        create.create(told, host.deployment("a", **PLAIN, disks=[one]))
    host.init("a", **PLAIN, disks=[{**one, "source_file": "a_b_c"}])
    assert [one.path for one in disks(host, "a")] == ["rbd:vms/a_b_c"]


@pytest.mark.parametrize("where", ["start", "define"])
def test_a_build_that_fails_removes_what_it_made_and_nothing_else(pooled, monkeypatch, where):
    host = pooled("logical", "web1_old")

    def fail(*_args):
        raise SeedError("this step failed")

    monkeypatch.setattr(lifecycle, where, fail)
    names = [{"name": name, "size": 8, "pool": "p"} for name in ("old", "new")]
    with pytest.raises(SeedError):
        host.init(**PLAIN, disks=names)
    assert (listed(host), host.open_records(), host.domains()) == (["web1_old"], [], [])


NOTED = [
    # Made, and it is the one: the key of the test driver is the path, so it has no number.
    ([["p", "v", ""]], [], []),
    # Another was made since.
    ([["p", "v", "its-number"]], ["v"], []),
    # Nobody knows.
    ([["p", "v"]], ["v"], [("build", "web1", "making")]),
    # It was not made.
    ([["p", "w"]], ["v"], []),
]


@pytest.mark.parametrize(("noted", "left", "open_"), NOTED)
def test_what_a_builder_that_died_has_made_is_removed(pooled, caplog, noted, left, open_):
    host = pooled("logical", "v")
    assert diskvolumes.find_volume_key(host.conn, "p", "v") is None
    place = reservations.folder(host.settings)
    with records.hold_record(place, "build", "web1") as dead:
        dead.begin("t1", "making", **onrecord.build(volumes=noted, taken=["p/v"]))

    unfinished.settle(host.conn, host.settings)

    assert (listed(host), host.open_records()) == (left, open_)
    if open_:
        assert "see what it is, then remove it with virt.volume_delete p v" in caplog.text
        diskvolumes.remove(host.conn, "p", "v")
        unfinished.settle(host.conn, host.settings)
        assert host.open_records() == []
