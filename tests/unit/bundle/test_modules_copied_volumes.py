"""A volume is copied in the format of its VM's definition, not in that of a guest's header."""

import contextlib
from pathlib import Path

import hostile
import libvirt
import pytest
from saltvirt.core.errors import StorageError
from saltvirt.libvirt.domains import cloudvms

POOL = "<pool type='dir'><name>p1</name><target><path>{}</path></target></pool>"
# How libvirt shows a raw disk after a refresh of its pool if the guest wrote such a header.
VOLUME = """<volume><name>{}</name><capacity>1048576</capacity><target><format type='{}'/></target>
{}</volume>"""
BELOW = "<backingStore><path>{}</path><format type='raw'/></backingStore>"
VM = """<domain type='test'><name>web1</name><memory>65536</memory><os><type>hvm</type></os>
<devices><disk type='{}' device='disk'><driver name='qemu' type='{}'/><source {}/>
<target dev='vda'/></disk></devices></domain>"""

DISK = """<pool type='disk'><name>d1</name><source><device path='/dev/sdx'/></source>
<target><path>/dev</path></target></pool>"""


@pytest.fixture
def pool(conn, tmp_path):
    """A pool with a volume that has a file of the host as its backing file."""
    (tmp_path / "secret").write_bytes(b"root:x" * 1000)
    (tmp_path / "p1").mkdir()
    storage_pool = conn.storagePoolDefineXML(POOL.format(tmp_path / "p1"))
    storage_pool.create()
    create_overlay(storage_pool, tmp_path / "secret")
    yield storage_pool
    with contextlib.suppress(libvirt.libvirtError):
        for volume in storage_pool.listAllVolumes():
            volume.delete()
        storage_pool.destroy()
        storage_pool.undefine()


def create_overlay(pool, backing_file, name="disk"):
    """Create a volume that has a file as its backing file."""
    overlay = pool.createXML(VOLUME.format(name, "qcow2", BELOW.format(backing_file)))
    options = ("-f", "qcow2", "-u", "-b", backing_file, "-F", "raw", overlay.path(), "1M")
    hostile.qemu_img("create", *options)


@pytest.mark.parametrize("kind", ["file", "volume"])
@pytest.mark.parametrize("volume_format", ["qcow2", "vmdk"])
def test_a_raw_disk_that_looks_like_another_format_is_not_copied(
    conn, virt, pool, kind, volume_format
):
    pool.createXML(VOLUME.format("other", volume_format, BELOW.format("/etc/shadow")))
    path = pool.storageVolLookupByName("other").path()
    source = {"file": f"file='{path}'", "volume": "pool='p1' volume='other'"}[kind]
    conn.defineXML(VM.format(kind, "raw", source))

    with pytest.raises(
        StorageError, match=f"p1/other is raw to the VM .* takes it for {volume_format}"
    ):
        virt.volume_clone("p1", "other", "copy")

    assert sorted(pool.listVolumes()) == ["disk", "other"]


def test_a_volume_of_no_vm_with_a_host_file_as_backing_file_is_not_copied(virt, pool):
    with pytest.raises(StorageError, match="p1/disk cannot be copied: .* names a backing file"):
        virt.volume_clone("p1", "disk", "copy")

    assert pool.listVolumes() == ["disk"]


def test_an_overlay_of_a_volume_with_a_host_file_as_backing_file_is_not_copied(virt, pool):
    create_overlay(pool, pool.storageVolLookupByName("disk").path(), "top")
    # The backing file is not declared as raw.
    options = ("-f", "qcow2", "-u", "-F", "qcow2", "-b")
    top, disk = (pool.storageVolLookupByName(name).path() for name in ("top", "disk"))
    hostile.qemu_img("rebase", *options, disk, top)

    with pytest.raises(StorageError, match="p1/top cannot be copied: .*/disk names a backing file"):
        virt.volume_clone("p1", "top", "copy")


def test_volumes_of_a_known_format_and_with_volumes_as_backing_files_are_copied(conn, virt, pool):
    base = pool.createXML(VOLUME.format("base", "raw", "")).path()
    hostile.qemu_img("create", "-f", "raw", base, "1M")
    create_overlay(pool, base, "overlay")
    path = pool.storageVolLookupByName("disk").path()
    conn.defineXML(VM.format("file", "qcow2", f"file='{path}'"))

    for name in ("disk", "base", "overlay"):
        assert virt.volume_clone("p1", name, f"copy of {name}") is True


@pytest.mark.parametrize("volume_format", ["iso", "fat"])
def test_formats_without_backing_files_are_copied(conn, virt, pool, volume_format):
    path = pool.createXML(VOLUME.format("boot", volume_format, "")).path()
    conn.defineXML(VM.format("file", "raw", f"file='{path}'"))
    how = {"strategy": "full", "learn_addresses": False, "validate": False}

    assert virt.volume_clone("p1", "boot", "copy") is True
    cloudvms.clone(conn, "web1", "web2", **how)

    assert len(pool.listVolumes()) == 4
    conn.lookupByName("web2").undefine()


def test_a_partition_is_copied(conn, virt):
    """A pool of type disk has the type of a partition as its volume's format."""
    disk = conn.storagePoolDefineXML(DISK)
    disk.create()
    path = disk.createXML(VOLUME.format("sdx1", "linux", "")).path()
    conn.defineXML(VM.format("file", "raw", f"file='{path}'"))

    assert virt.volume_clone("d1", "sdx1", "sdx2") is True


def test_an_overlay_on_a_volume_of_a_group_is_copied(conn, virt, pool, tmp_path):
    """A volume of a logical pool is a link to its device."""
    group = conn.storagePoolDefineXML(DISK.replace("/dev<", f"{tmp_path}/vg<"))
    group.create()
    path = group.createXML(VOLUME.format("sdx1", "linux", "")).path()
    (tmp_path / "dm-3").write_bytes(bytes(2**20))
    (tmp_path / "vg").mkdir(exist_ok=True)
    (tmp_path / "vg" / "sdx1").unlink(missing_ok=True)
    (tmp_path / "vg" / "sdx1").symlink_to(tmp_path / "dm-3")
    create_overlay(pool, path, "overlay")

    assert virt.volume_clone("p1", "overlay", "copy") is True


def test_salt_cloud_does_not_clone_a_disk_that_looks_like_another_format(conn, pool):
    path = pool.storageVolLookupByName("disk").path()
    conn.defineXML(VM.format("file", "raw", f"file='{path}'"))
    how = {"strategy": "full", "learn_addresses": False, "validate": False}

    with pytest.raises(StorageError, match="disk is raw to its VM, and libvirt takes it for qcow2"):
        cloudvms.clone(conn, "web1", "web2", **how)

    assert pool.listVolumes() == ["disk"] and "web2" not in conn.listDefinedDomains()


@pytest.mark.parametrize("volume_format", ["cow", "qcow", "qed", "vmdk"])
def test_a_volume_of_no_vm_in_a_format_with_unread_backing_files_is_not_copied(
    virt, pool, volume_format
):
    path = pool.createXML(VOLUME.format("other", volume_format, BELOW.format("/etc/shadow"))).path()
    Path(path).write_bytes(b"x")

    with pytest.raises(
        StorageError, match=f"p1/other is {volume_format}, .* make it qcow2 by qemu-img"
    ):
        virt.volume_clone("p1", "other", "copy")

    assert sorted(pool.listVolumes()) == ["disk", "other"]


def test_an_installation_medium_is_copied_as_raw(conn, virt, pool):
    """It is a disk on which a guest has written an ISO image, or a medium of a VM."""
    path = pool.createXML(VOLUME.format("dvd", "iso", "")).path()
    conn.defineXML(VM.format("file", "raw", f"file='{path}'"))

    assert virt.volume_clone("p1", "dvd", "copy") is True
    cloudvms.clone(conn, "web1", "web2", strategy="full", learn_addresses=False, validate=False)

    conn.lookupByName("web2").undefine()


def test_the_kind_of_a_partition_is_no_format(conn, virt):
    pool = conn.storagePoolDefineXML(
        "<pool type='disk'><name>p2</name><source><device path='/dev/sdz'/></source>"
        "<target><path>/dev</path></target></pool>"
    )
    pool.create()
    path = pool.createXML(VOLUME.format("sdz1", "linux", "")).path()
    conn.defineXML(VM.format("block", "raw", f"dev='{path}'"))
    try:
        assert virt.volume_clone("p2", "sdz1", "sdz2") is True
    finally:
        conn.lookupByName("web1").undefine()
        pool.destroy()
        pool.undefine()
