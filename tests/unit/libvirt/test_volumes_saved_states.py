"""What is not deleted: what a VM with a saved state has, or is based on, and half of a pool."""

import libvirt
import pytest
from saltvirt.core.errors import StorageError
from saltvirt.libvirt.storage import volumes

DOMAIN = """<domain type='test'><name>{}</name><memory>65536</memory><os><type>hvm</type></os>
<devices><disk type='{}' device='disk'>{}<target dev='vda'/></disk></devices></domain>"""
LINE = "'d1' has a saved state .*managedsave-remove d1"


@pytest.fixture
def saved(conn, virt):
    """A VM with a saved state, whose disk is a volume that is based on another."""
    pool = conn.storagePoolLookupByName("default-pool")
    for name, below in (("base", ""), ("top", "/default-pool/base")):
        backing = f"<backingStore><path>{below}</path></backingStore>" if below else ""
        pool.createXML(f"<volume><name>{name}</name><capacity>1024</capacity>{backing}</volume>")
    source = "<source pool='default-pool' volume='top'/>"
    vm = conn.defineXML(DOMAIN.format("d1", "volume", source))
    vm.create()
    vm.managedSave()
    yield vm
    if "d1" in conn.listDefinedDomains() and vm.hasManagedSaveImage():
        vm.managedSaveRemove()


def test_a_pool_is_not_purged_under_a_vm_that_is_to_go_on(conn, applied, saved):
    for said in applied("pool_deleted", "default-pool", purge=True):
        assert (said["result"], said["changes"]) == (False, {})
        assert "'d1' has a saved state" in said["comment"]
    assert sorted(volumes.names(conn, "default-pool")) == ["base", "top"]

    saved.managedSaveRemove()
    (*_, last) = applied("pool_deleted", "default-pool", purge=True)
    assert "volume default-pool/base stays: a disk of VM 'd1' is based on it" in last["comment"]
    saved.undefine()
    assert applied("pool_deleted", "default-pool", purge=True)[1]["result"] is True


def test_what_is_below_a_disk_of_a_vm_that_is_to_go_on_stays(virt, saved):
    for name, given in {"volume_delete": [], "volume_resize": [16]}.items():
        with pytest.raises(StorageError, match=LINE):
            getattr(virt, name)("default-pool", "base", *given)

    saved.managedSaveRemove()
    with pytest.raises(StorageError, match="base stays: a disk of VM 'd1' is based on it"):
        virt.volume_delete("default-pool", "base")
    saved.undefine()
    assert virt.volume_delete("default-pool", "base") is True


def test_only_vms_with_a_saved_state_are_read_for_what_these_have(conn, saved, monkeypatch):
    asked, read = set(), libvirt.virDomain.XMLDesc

    def says(self, *flags):
        asked.add(self.name())
        return read(self, *flags)

    other = conn.defineXML(DOMAIN.format("d2", "file", "<source file='/srv/d2.img'/>"))
    monkeypatch.setattr(libvirt.virDomain, "XMLDesc", says)
    with pytest.raises(StorageError, match=LINE):
        volumes.refuse_saved(conn, "default-pool", "base")
    other.undefine()

    assert asked == {"d1"}


def test_a_pool_with_a_folder_that_libvirt_would_not_remove_does_not_go_by_half(
    conn, virt, applied, tmp_path
):
    applied("pool_running", "p1", target=str(tmp_path))
    # libvirt calls folders volumes, too.
    for name in ("v", "empty", ".salt-virt-trash"):
        virt.volume_define("p1", name, 1)
    (tmp_path / "empty").mkdir()
    kept = tmp_path / ".salt-virt-trash/web1-00000001"
    kept.mkdir(parents=True)
    (kept / "web1.qcow2").touch()

    for said in applied("pool_deleted", "p1", purge=True):
        assert (said["result"], said["changes"]) == (False, {})
        assert "not empty (.salt-virt-trash), and libvirt removes no such" in said["comment"]

    # So it is left by a purge that died before the entry was on record: no trash_empty knows it.
    (kept / "web1.qcow2").unlink()
    done = applied("pool_deleted", "p1", purge=True)[1]
    assert not kept.exists()
    assert sorted(done["changes"]["deleted_volumes"]) == [".salt-virt-trash", "empty", "v"]


@pytest.mark.parametrize("scheme", ["gluster", "gluster+tcp"])
def test_a_volume_of_gluster_is_known_by_the_name_that_disks_have(scheme):
    assert volumes._real(f"{scheme}://nas:24007/vms/d1.qcow2") == "vms/d1.qcow2"
    assert volumes._real("vms/d1.qcow2") == "vms/d1.qcow2"
