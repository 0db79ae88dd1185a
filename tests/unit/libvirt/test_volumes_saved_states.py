"""No disk of a saved VM is deleted, nor its base; a pool is not deleted by half."""

import libvirt
import pytest
from saltvirt.core.errors import StorageError
from saltvirt.libvirt.storage import volumes

DOMAIN = """<domain type='test'><name>{}</name><memory>65536</memory><os><type>hvm</type></os>
<devices><disk type='{}' device='disk'>{}<target dev='vda'/></disk></devices></domain>"""
LINE = "'d1' has a saved state .*managedsave-remove d1"


@pytest.fixture
def saved_vm(conn, virt):
    """A VM with a saved state; its disk is a volume over another volume."""
    pool = conn.storagePoolLookupByName("default-pool")
    for name, backing_path in (("base", ""), ("top", "/default-pool/base")):
        backing = (
            f"<backingStore><path>{backing_path}</path></backingStore>" if backing_path else ""
        )
        pool.createXML(f"<volume><name>{name}</name><capacity>1024</capacity>{backing}</volume>")
    source = "<source pool='default-pool' volume='top'/>"
    vm = conn.defineXML(DOMAIN.format("d1", "volume", source))
    vm.create()
    vm.managedSave()
    yield vm
    if "d1" in conn.listDefinedDomains() and vm.hasManagedSaveImage():
        vm.managedSaveRemove()


def test_a_pool_with_a_disk_of_a_saved_vm_is_not_purged(conn, applied, saved_vm):
    for answer in applied("pool_deleted", "default-pool", purge=True):
        assert (answer["result"], answer["changes"]) == (False, {})
        assert "'d1' has a saved state" in answer["comment"]
    assert sorted(volumes.names(conn, "default-pool")) == ["base", "top"]

    saved_vm.managedSaveRemove()
    (*_, last_answer) = applied("pool_deleted", "default-pool", purge=True)
    assert (
        "volume default-pool/base stays: a disk of VM 'd1' is based on it" in last_answer["comment"]
    )
    saved_vm.undefine()
    assert applied("pool_deleted", "default-pool", purge=True)[1]["result"] is True


def test_a_base_of_a_disk_of_a_saved_vm_stays(virt, saved_vm):
    for name, args in {"volume_delete": [], "volume_resize": [16]}.items():
        with pytest.raises(StorageError, match=LINE):
            getattr(virt, name)("default-pool", "base", *args)

    saved_vm.managedSaveRemove()
    with pytest.raises(StorageError, match="base stays: a disk of VM 'd1' is based on it"):
        virt.volume_delete("default-pool", "base")
    saved_vm.undefine()
    assert virt.volume_delete("default-pool", "base") is True


def test_only_definitions_of_vms_with_a_saved_state_are_read(conn, saved_vm, monkeypatch):
    read_names, read = set(), libvirt.virDomain.XMLDesc

    def note_and_read(self, *flags):
        read_names.add(self.name())
        return read(self, *flags)

    other_vm = conn.defineXML(DOMAIN.format("d2", "file", "<source file='/srv/d2.img'/>"))
    monkeypatch.setattr(libvirt.virDomain, "XMLDesc", note_and_read)
    with pytest.raises(StorageError, match=LINE):
        volumes.refuse_saved(conn, "default-pool", "base")
    other_vm.undefine()

    assert read_names == {"d1"}


def test_a_pool_with_a_folder_that_libvirt_would_not_remove_does_not_go_by_half(
    conn, virt, applied, tmp_path
):
    applied("pool_running", "p1", target=str(tmp_path))
    # libvirt calls folders volumes, too.
    for name in ("v", "empty", ".salt-virt-trash"):
        virt.volume_define("p1", name, 1)
    (tmp_path / "empty").mkdir()
    trash_entry = tmp_path / ".salt-virt-trash/web1-00000001"
    trash_entry.mkdir(parents=True)
    (trash_entry / "web1.qcow2").touch()

    for answer in applied("pool_deleted", "p1", purge=True):
        assert (answer["result"], answer["changes"]) == (False, {})
        assert "not empty (.salt-virt-trash), and libvirt removes no such" in answer["comment"]

    # A purge that died before it recorded the entry leaves an empty one; trash_empty knows none.
    (trash_entry / "web1.qcow2").unlink()
    final_answer = applied("pool_deleted", "p1", purge=True)[1]
    assert not trash_entry.exists()
    assert sorted(final_answer["changes"]["deleted_volumes"]) == [".salt-virt-trash", "empty", "v"]


@pytest.mark.parametrize("scheme", ["gluster", "gluster+tcp"])
def test_a_volume_of_gluster_is_known_by_the_name_that_disks_have(scheme):
    assert volumes._real(f"{scheme}://nas:24007/vms/d1.qcow2") == "vms/d1.qcow2"
    assert volumes._real("vms/d1.qcow2") == "vms/d1.qcow2"
