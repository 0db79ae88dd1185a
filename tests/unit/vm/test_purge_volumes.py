"""A VM is purged with its volumes of storage pools, and with nothing of others."""

import logging
import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import asloaded
import pytest
from saltvirt.core.errors import NoSuchVm, StorageError, VirtError
from saltvirt.libvirt.domains import lifecycle
from saltvirt.libvirt.storage import diskvolumes
from saltvirt.storage import policies, unreadablechains, vmvolumes
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.vm.purge.host import purge
from saltvirt.vm.recovery.host import unfinished

CEPH = """<pool type='rbd'><name>ceph</name><source><host name='mon1' port='6789'/>
<host name='mon2'/><name>vms</name></source></pool>"""
LVM = "<pool type='logical'><name>lvm</name><source><name>vg0</name></source></pool>"
RBD = """<source protocol='rbd' name='{}'><host name='mon2'/><host name='mon1' port='6789'/>
</source>"""
OTHER = RBD.replace("mon1", "mon9")


def vm(name, *disks):
    """Return a VM's definition; each disk is its type and its source."""
    elements = "".join(
        f"<disk type='{kind}' device='{device}'>{source}<target dev='vd{letter}'/></disk>"
        for letter, (kind, source, device) in zip("abcdef", disks, strict=False)
    )
    return (
        f"<domain type='test'><name>{name}</name><memory>65536</memory><os><type>hvm</type></os>"
        f"<devices>{elements}</devices></domain>"
    )


def of_pool(pool, name, device="disk"):
    """Return a disk that is a volume."""
    return "volume", f"<source pool='{pool}' volume='{name}'/>", device


def block(path):
    """Return a disk that is a device."""
    return "block", f"<source dev='{path}'/>", "disk"


def network(name, source=RBD):
    """Return a disk that is elsewhere."""
    return "network", source.format(name), "disk"


@pytest.fixture
def host(hypervisor):
    """A hypervisor with pools, which hold what :func:`volume` makes in them."""
    folder = Path(hypervisor.settings.images)
    folder.mkdir()
    files = f"<pool type='dir'><name>vms</name><target><path>{folder}</path></target></pool>"
    with hypervisor.libvirt() as conn:
        hypervisor.conn = conn
        for xml in (files, CEPH, LVM):
            conn.storagePoolCreateXML(xml)
        yield hypervisor
        for name in ("vms", "ceph", "lvm"):
            pool = diskvolumes.pools.find(conn, name)
            for one in pool.listAllVolumes():
                one.delete()
            pool.destroy()


def volume(host, pool, *names):
    """Make volumes, and the files of those that are files."""
    found = host.conn.storagePoolLookupByName(pool)
    for name in names:
        found.createXML(f"<volume><name>{name}</name><capacity>1024</capacity></volume>")
        if pool == "vms":
            (Path(host.settings.images) / name).touch()


def volumes(host, pool):
    """Return the volumes that a pool has."""
    return sorted(host.conn.storagePoolLookupByName(pool).listVolumes())


def purged(host, *disks, name="d1", **given):
    """Define a VM, and purge it."""
    lifecycle.define(host.conn, vm(name, *disks))
    purge.purge(host.conn, host.settings, name, **given)


def test_the_file_of_a_volume_goes_with_its_vm(host):
    volume(host, "vms", "a", "b", "iso")

    purged(host, of_pool("vms", "a"), of_pool("vms", "iso", "cdrom"))

    assert host.files() == ["b", "iso"]
    assert (host.domains(), host.open_records()) == ([], [])


def test_removables_go_when_that_is_asked_for(host):
    volume(host, "vms", "iso")

    purged(host, of_pool("vms", "iso", "cdrom"), removables=True)

    assert host.files() == []


def test_volumes_that_are_no_files_are_deleted_by_libvirt(host):
    volume(host, "lvm", "a", "b", "c")
    volume(host, "ceph", "x", "y", "z")

    purged(host, of_pool("lvm", "a"), block("/dev/vg0/b"), of_pool("ceph", "x"), network("vms/y"))

    assert (volumes(host, "lvm"), volumes(host, "ceph")) == (["c"], ["z"])


def test_what_is_in_no_pool_stays_and_the_log_says_so(host, caplog):
    volume(host, "ceph", "x")

    with caplog.at_level(logging.WARNING):
        purged(host, block("/dev/sdz"), network("vms/x", OTHER), of_pool("gone", "x"))

    assert volumes(host, "ceph") == ["x"]
    said = [line for line in caplog.messages if "stays: it is in no pool of this host" in line]
    assert len(said) == 3 and "dev=/dev/sdz of VM d1" in said[0]


@pytest.mark.parametrize("pool", ["vms", "lvm", "ceph"])
def test_a_volume_that_another_vm_uses_stays(host, pool):
    volume(host, pool, "a")
    lifecycle.define(host.conn, vm("d2", of_pool(pool, "a")))

    purged(host, of_pool(pool, "a"))

    assert volumes(host, pool) == ["a"]
    assert host.files() == (["a"] if pool == "vms" else [])


def test_the_base_of_another_vms_volume_stays(host):
    volume(host, "lvm", "base")
    host.conn.storagePoolLookupByName("lvm").createXML(
        "<volume><name>top</name><capacity>1024</capacity><backingStore>"
        "<path>/dev/vg0/base</path><format type='raw'/></backingStore></volume>"
    )
    lifecycle.define(host.conn, vm("d2", of_pool("lvm", "top")))

    purged(host, of_pool("lvm", "base"))

    assert volumes(host, "lvm") == ["base", "top"]


def test_a_name_that_leads_elsewhere_is_no_volume(host, tmp_path):
    (tmp_path / "precious").touch()

    purged(host, of_pool("vms", "../precious"))

    assert (tmp_path / "precious").exists()


def test_a_pool_that_does_not_run_is_named_and_nothing_is_removed(host):
    volume(host, "vms", "a")
    host.conn.storagePoolDefineXML(LVM.replace("vg0", "vg1").replace("lvm", "off"))

    with pytest.raises(StorageError, match="'off', which does not run.*virt.pool_start off first"):
        purged(host, of_pool("vms", "a"), of_pool("off", "b"))

    assert (host.files(), host.domains()) == (["a"], ["d1"])
    host.conn.storagePoolLookupByName("off").undefine()


def test_the_volumes_of_a_vm_that_has_moved_stay(host):
    volume(host, "ceph", "x")
    lifecycle.define(host.conn, vm("d1", of_pool("ceph", "x")))
    lifecycle.mark_moved(host.conn, "d1", "hyper2")

    with pytest.raises(StorageError, match="has moved to hyper2.*ceph/x"):
        purge.purge(host.conn, host.settings, "d1")
    assert volumes(host, "ceph") == ["x"]


def kill(*_args, **_given):
    """Die as a process does that is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def numbered(patched):
    """Have volumes be numbered, as LVM's are, which the test driver's are not."""
    patched.setattr(diskvolumes, "find_volume_key", lambda _conn, pool, name: f"{pool} {len(name)}")


@pytest.mark.parametrize("is_numbered", [True, False])
def test_a_purge_that_was_killed_before_its_volumes_removes_what_it_knows_again(
    host, monkeypatch, caplog, is_numbered
):
    """In the killed process libvirt is its own; here it has the volumes still."""
    volume(host, "lvm", "x")
    definition = vm("d1", of_pool("lvm", "x"))
    if is_numbered:
        numbered(monkeypatch)

    def dying():
        lifecycle.define(host.conn, definition)
        purge.purge(host.conn, host.settings, "d1")

    with monkeypatch.context() as patched:
        patched.setattr(diskvolumes, "remove", kill)
        host.dies(dying)
    assert host.open_records() == [("purge", "d1", "removing")]

    with caplog.at_level(logging.WARNING):
        unfinished.settle(host.conn, host.settings)

    assert volumes(host, "lvm") == ([] if is_numbered else ["x"])
    assert ("virt.volume_delete lvm x" in caplog.text) is not is_numbered
    assert host.open_records() == []
    with pytest.raises(NoSuchVm):
        purge.purge(host.conn, host.settings, "d1")


def test_another_volume_of_that_name_stays(host, monkeypatch):
    volume(host, "lvm", "x")
    numbered(monkeypatch)
    with monkeypatch.context() as failing:
        failing.setattr(diskvolumes, "remove", lambda *_args: "it is busy")
        with pytest.raises(StorageError, match="it is busy"):
            purged(host, of_pool("lvm", "x"))
    monkeypatch.setattr(diskvolumes, "find_volume_key", lambda *_args: "another")

    purge.purge(host.conn, host.settings, "d1")

    assert (volumes(host, "lvm"), host.open_records()) == (["x"], [])


def test_a_volume_that_cannot_be_removed_is_named_and_the_purge_can_be_repeated(host, monkeypatch):
    volume(host, "ceph", "x")
    numbered(monkeypatch)
    with monkeypatch.context() as failing:
        failing.setattr(diskvolumes, "remove", lambda *_args: "image has watchers")
        with pytest.raises(StorageError, match=r"the VM is gone, but .*ceph/x \(image has watch"):
            purged(host, of_pool("ceph", "x"))

    purge.purge(host.conn, host.settings, "d1")

    assert (volumes(host, "ceph"), host.open_records()) == ([], [])


def test_what_a_disk_outside_all_pools_is_based_on_is_not_wiped(host, tmp_path):
    volume(host, "vms", "base.qcow2", "free")
    base, upper = Path(host.settings.images) / "base.qcow2", tmp_path / "upper.qcow2"
    for argv in (["create", base, "8M"], ["create", "-F", "qcow2", "-b", base, upper]):
        subprocess.run(["qemu-img", argv[0], "-q", "-f", "qcow2", *argv[1:]], check=True)
    text = vm("d1", ("file", f"<driver type='qcow2'/><source file='{upper}'/>", "disk"))
    lifecycle.define(host.conn, text)

    wipeable = (host.conn, host.settings, "vms")
    assert vmvolumes.judge_wipe(*wipeable, "free", OtherHostsUsage())[0].is_free
    (verdict,) = vmvolumes.judge_wipe(*wipeable, "base.qcow2", OtherHostsUsage())
    assert "is based on it" in verdict.reason
    wiped = asloaded.module("_modules/virt_volume.py")
    wiped.config = SimpleNamespace(for_call=lambda *_given: host.settings)
    for is_dry in (True, False):
        with pytest.raises(StorageError, match="is not wiped"):
            wiped.volume_wipe("vms", "base.qcow2", test=is_dry)


def test_a_dry_run_leaves_a_volume_and_refuses_what_the_deletion_does(host):
    volume(host, "vms", "free", "used")
    lifecycle.define(host.conn, vm("d1", of_pool("vms", "used")))
    virt = asloaded.module("_modules/virt_volume.py")
    virt.config = SimpleNamespace(for_call=lambda *_given: host.settings)

    assert virt.volume_delete("vms", "free", test=True) == "would be deleted"
    assert virt.volume_wipe("vms", "free", test=True) == "would be wiped"
    for is_dry in (True, False):
        with pytest.raises(VirtError, match="missing"):
            virt.volume_delete("vms", "missing", test=is_dry)
    assert volumes(host, "vms") == ["free", "used"]
    assert virt.volume_delete("vms", "free") is True
    assert volumes(host, "vms") == ["used"]


def test_what_a_disk_in_the_trash_is_based_on_is_used(host, monkeypatch):
    volume(host, "vms", "base.qcow2")
    where = (host.conn, host.settings, policies.UNDO, "vms", "base.qcow2")
    assert not vmvolumes.judge_volume(*where).used_by

    path = f"{host.settings.images}/base.qcow2"
    monkeypatch.setattr(unreadablechains, "backing_files", lambda _settings: {path: "deep-1"})
    assert vmvolumes.judge_volume(*where).used_by[0].owner == "deep-1"
