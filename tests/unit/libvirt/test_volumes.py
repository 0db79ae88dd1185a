"""Volumes on libvirt's test driver."""

import subprocess
import time

import libvirt
import pytest
from saltvirt.core.errors import BadArgument, LibvirtRefused, StorageError
from saltvirt.libvirt.storage import volumes
from saltvirt.storage import diskpaths

DOMAIN = """<domain type='test'><name>{}</name><memory>65536</memory><os><type>hvm</type></os>
<devices><disk type='{}' device='disk'><source {}/><target dev='vda'/></disk></devices></domain>"""


def counting(calls, name, call):
    """Return a method that notes each call of it."""

    def noted(*args):
        calls.append(name)
        return call(*args)

    return noted


def test_volumes_are_listed_by_one_call_and_each_is_read_once(conn, monkeypatch):
    pool = conn.storagePoolLookupByName("default-pool")
    for number in range(20):
        pool.createXML(f"<volume><name>v{number}</name><capacity>1024</capacity></volume>")
    calls = []
    for kind, names in (
        (libvirt.virStoragePool, ("listAllVolumes", "storageVolLookupByName", "listVolumes")),
        (libvirt.virStorageVol, ("XMLDesc", "info", "path")),
    ):
        for name in names:
            monkeypatch.setattr(kind, name, counting(calls, name, getattr(kind, name)))

    assert len(volumes.infos(conn)["default-pool"]) == 20
    assert sorted(calls) == ["XMLDesc"] * 20 + ["listAllVolumes"]
    calls.clear()
    assert len(volumes.names(conn, "default-pool")) == 20
    assert calls == ["listVolumes"]


def volume(pool, name, base=None):
    """Make a volume, with a backing volume if one is given."""
    backing_xml = (
        f"<backingStore><path>{base}</path><format type='raw'/></backingStore>" if base else ""
    )
    pool.createXML(f"<volume><name>{name}</name><capacity>1024</capacity>{backing_xml}</volume>")


def test_a_volume_is_used_by_the_vms_above_it(conn):
    pool = conn.storagePoolLookupByName("default-pool")
    volume(pool, "base")
    volume(pool, "middle", "/default-pool/base")
    volume(pool, "top", "/default-pool/middle")
    volume(pool, "other", "/default-pool/other")
    conn.defineXML(DOMAIN.format("d1", "file", "file='/default-pool/top'"))
    conn.defineXML(DOMAIN.format("d2", "volume", "pool='default-pool' volume='middle'"))
    conn.defineXML(DOMAIN.format("d3", "volume", "pool='default-pool' volume='other'"))

    infos = volumes.infos(conn)["default-pool"]

    used = {name: info["used_by"] for name, info in infos.items()}
    assert used == {"base": ["d1", "d2"], "middle": ["d1", "d2"], "top": ["d1"], "other": ["d3"]}


POOLS = {
    "iscsi": "<pool type='iscsi'><name>iscsi</name><source><host name='storage'/>"
    "<device path='iqn.2026-01.org.example:one'/></source>"
    "<target><path>/dev/disk/by-path</path></target></pool>",
    "scsi": "<pool type='scsi'><name>scsi</name><source><adapter type='scsi_host' name='host0'/>"
    "</source><target><path>/dev/disk/by-path</path></target></pool>",
    "dir": "<pool type='dir'><name>dir</name><target><path>/nowhere</path></target></pool>",
}


@pytest.fixture
def linked_pools(conn, tmp_path):
    """Two pools of one folder, one of them through a link, with a volume v1."""
    (tmp_path / "vms").mkdir()
    (tmp_path / "link").symlink_to("vms")
    for pool in ("vms", "link"):
        text = (
            f"<pool type='dir'><name>{pool}</name><target><path>{tmp_path / pool}</path></target>"
        )
        new_pool = conn.storagePoolDefineXML(f"{text}</pool>")
        new_pool.create()
        volume(new_pool, "v1")
    return tmp_path


@pytest.mark.parametrize(
    "source", ["file='{}/vms/v1'", "file='{}/link/v1'", "pool='vms' volume='v1'"]
)
def test_a_volume_is_used_under_any_name_of_its_file(conn, virt, linked_pools, source):
    kind = source.partition("=")[0].replace("pool", "volume")
    vm = conn.defineXML(DOMAIN.format("d1", kind, source.format(linked_pools)))

    for pool in ("vms", "link"):
        assert volumes.infos(conn, pool, "v1")[pool]["v1"]["used_by"] == ["d1"]
        with pytest.raises(StorageError, match="is not wiped: VM 'd1' has it"):
            virt.volume_wipe(pool, "v1")
    vm.create()
    for pool in ("vms", "link"):
        assert volumes.used_by_running(conn, pool) == {"v1": "d1"}
        with pytest.raises(StorageError, match="VM 'd1' runs and uses volume"):
            virt.volume_delete(pool, "v1")


def test_a_volume_that_a_vm_of_another_host_has_open_stays(conn, virt, applied, linked_pools):
    path = linked_pools / "vms/v1"
    path.write_bytes(bytes(1 << 20))
    argv = ["qemu-io", "-f", "raw", path]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as program:
        while not diskpaths.is_open(path):
            assert program.poll() is None
            time.sleep(0.01)
        for call in (virt.volume_delete, lambda *args: virt.volume_resize(*args, 8)):
            with pytest.raises(StorageError, match="is open in another program"):
                call("link", "v1")
        answers = applied("pool_deleted", "vms", purge=True)
        program.communicate(b"quit\n")

    assert {
        (answer["result"], "is open in another" in answer["comment"]) for answer in answers
    } == {(False, True)}
    assert virt.volume_delete("link", "v1") is True
    assert volumes.names(conn, "vms") == ["v1"]


@pytest.mark.parametrize(
    ("kind", "source"), [("block", "dev='/dev/vg1/d1'"), ("volume", "pool='group' volume='d1'")]
)
def test_a_volume_group_of_which_a_vm_that_is_off_has_a_volume_is_not_deleted(
    conn, virt, kind, source
):
    pool = conn.storagePoolDefineXML(
        "<pool type='logical'><name>group</name><source><name>vg1</name></source>"
        "<target><path>/dev/vg1</path></target></pool>"
    )
    vm = conn.defineXML(DOMAIN.format("d1", kind, source))

    with pytest.raises(StorageError, match="VM 'd1' has a volume of pool 'group', and all"):
        virt.pool_delete("group")

    vm.undefine()
    assert virt.pool_delete("group") is True
    assert not pool.isActive()


@pytest.mark.parametrize(("kind", "goes"), [("iscsi", False), ("scsi", False), ("dir", True)])
def test_a_pool_whose_devices_go_with_it_is_not_stopped_under_a_vm(conn, virt, applied, kind, goes):
    pool = conn.storagePoolCreateXML(POOLS[kind])
    try:
        pool.createXML("<volume><name>v1</name><capacity>1024</capacity></volume>")
        vm = conn.createXML(DOMAIN.format("d1", "volume", f"pool='{kind}' volume='v1'"))
        for answer in applied("pool_deleted", kind):
            assert ("VMs that run use volumes" in answer["comment"]) is not goes
        if not goes:
            with pytest.raises(StorageError, match=f"of pool '{kind}': v1 by d1; stop them first"):
                virt.pool_stop(kind)
        vm.destroy()
        assert goes or virt.pool_stop(kind) is True
    finally:
        for active_pool in conn.listAllStoragePools(0):
            if active_pool.name() == kind:
                active_pool.destroy()


def test_a_volume_that_vanishes_meanwhile_is_left_out(conn, monkeypatch):
    pool = conn.storagePoolLookupByName("default-pool")
    volume(pool, "gone")
    volume(pool, "there")
    read = libvirt.virStorageVol.XMLDesc

    def vanishing(self, *args):
        if self.name() == "gone":
            self.delete(0)
        return read(self, *args)

    monkeypatch.setattr(libvirt.virStorageVol, "XMLDesc", vanishing)

    assert list(volumes.infos(conn)["default-pool"]) == ["there"]


def test_a_copy_is_based_on_nothing_and_has_the_same_size(conn, virt):
    pool = conn.storagePoolLookupByName("default-pool")
    volume(pool, "v1")

    assert virt.volume_clone("default-pool", "v1", "v2") is True

    assert virt.volume_infos("default-pool", "v2")["default-pool"]["v2"]["capacity"] == 1024


def test_a_volume_is_not_cut_by_mistake_nor_resized_for_nothing(virt):
    virt.volume_define("default-pool", "v1", 8)

    assert virt.volume_resize("default-pool", "v1", "8MiB") is True
    with pytest.raises(BadArgument, match="has 8.0M, and what is beyond 4.0M would be lost"):
        virt.volume_resize("default-pool", "v1", 4)


def test_a_copy_of_what_a_vm_was_started_with_meanwhile_is_removed(conn, virt, monkeypatch):
    virt.volume_define("default-pool", "v1", 8)
    conn.defineXML(DOMAIN.format("d1", "volume", "pool='default-pool' volume='v1'"))
    copy = libvirt.virStoragePool.createXMLFrom

    def slow(*args):
        new_volume = copy(*args)
        conn.lookupByName("d1").create()
        return new_volume

    monkeypatch.setattr(libvirt.virStoragePool, "createXMLFrom", slow)

    with pytest.raises(StorageError, match="VM 'd1' runs and uses volume default-pool/v1"):
        virt.volume_clone("default-pool", "v1", "v2")

    assert virt.pool_list_volumes("default-pool") == ["v1"]


def test_a_volume_of_a_vm_that_is_to_go_on_with_it_is_left_alone(conn, virt, tmp_path):
    virt.volume_define("default-pool", "v1", 8)
    vm = conn.defineXML(DOMAIN.format("d1", "volume", "pool='default-pool' volume='v1'"))
    vm.create()
    vm.managedSave()
    (tmp_path / "new").write_bytes(bytes(4096))
    calls = {
        "volume_upload": [str(tmp_path / "new")],
        "volume_resize": [16],
        "volume_clone": ["v2"],
        "volume_delete": [],
    }
    try:
        for name, args in calls.items():
            with pytest.raises(
                StorageError, match="'d1' has a saved state .*managedsave-remove d1"
            ):
                getattr(virt, name)("default-pool", "v1", *args)
    finally:
        vm.managedSaveRemove()

    assert virt.volume_delete("default-pool", "v1") is True


def test_a_volume_that_a_stopped_vm_has_is_not_wiped(conn, virt):
    virt.volume_define("default-pool", "v1", 8)
    conn.defineXML(DOMAIN.format("d1", "volume", "pool='default-pool' volume='v1'"))

    with pytest.raises(StorageError, match="is not wiped: VM 'd1' has it"):
        virt.volume_wipe("default-pool", "v1")
    with pytest.raises(BadArgument, match="algorithm: 'x'; one of zero"):
        virt.volume_wipe("default-pool", "v1", "x")


def test_an_existing_file_is_not_written_over_nor_a_pipe_read(virt, tmp_path):
    virt.volume_define("default-pool", "v1", 8)
    (tmp_path / "there").touch()

    with pytest.raises(StorageError, match="is there already; nothing is written over"):
        virt.volume_download("default-pool", "v1", tmp_path / "there")
    # The test driver has no streams; the failed download must leave no file.
    with pytest.raises(LibvirtRefused):
        virt.volume_download("default-pool", "v1", tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there"]
    with pytest.raises(BadArgument, match="file: /dev/null is neither"):
        virt.volume_upload("default-pool", "v1", "/dev/null")
    with pytest.raises(BadArgument, match="path: /nope"):
        virt.define_vol_xml_path("/nope")
