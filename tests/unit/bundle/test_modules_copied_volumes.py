"""A volume is copied as what its VM has it as, and not as what a guest has written into it."""

import contextlib
from pathlib import Path

import hostile
import libvirt
import pytest
from saltvirt.core.errors import StorageError
from saltvirt.libvirt.domains import cloudvms

POOL = "<pool type='dir'><name>p1</name><target><path>{}</path></target></pool>"
# As libvirt shows a raw disk, once it has looked at its pool again, whose guest has written that.
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
    """A pool with a volume whose header names a file of the host."""
    (tmp_path / "secret").write_bytes(b"root:x" * 1000)
    (tmp_path / "p1").mkdir()
    made = conn.storagePoolDefineXML(POOL.format(tmp_path / "p1"))
    made.create()
    named(made, tmp_path / "secret")
    yield made
    with contextlib.suppress(libvirt.libvirtError):
        for one in made.listAllVolumes():
            one.delete()
        made.destroy()
        made.undefine()


def named(pool, below, name="disk"):
    """Make a volume that names a file as the one below it."""
    made = pool.createXML(VOLUME.format(name, "qcow2", BELOW.format(below)))
    given = ("-f", "qcow2", "-u", "-b", below, "-F", "raw", made.path(), "1M")
    hostile.qemu_img("create", *given)


@pytest.mark.parametrize("kind", ["file", "volume"])
@pytest.mark.parametrize("says", ["qcow2", "vmdk"])
def test_a_raw_disk_that_looks_like_another_format_is_not_copied(conn, virt, pool, kind, says):
    pool.createXML(VOLUME.format("other", says, BELOW.format("/etc/shadow")))
    path = pool.storageVolLookupByName("other").path()
    source = {"file": f"file='{path}'", "volume": "pool='p1' volume='other'"}[kind]
    conn.defineXML(VM.format(kind, "raw", source))

    with pytest.raises(StorageError, match=f"p1/other is raw to the VM .* takes it for {says}"):
        virt.volume_clone("p1", "other", "copy")

    assert sorted(pool.listVolumes()) == ["disk", "other"]


def test_a_volume_of_nobody_that_names_a_file_of_the_host_is_not_copied(virt, pool):
    with pytest.raises(StorageError, match="p1/disk cannot be copied: .* names a backing file"):
        virt.volume_clone("p1", "disk", "copy")

    assert pool.listVolumes() == ["disk"]


def test_a_volume_on_one_that_names_a_file_of_the_host_is_not_copied(virt, pool):
    named(pool, pool.storageVolLookupByName("disk").path(), "top")
    # Nothing says of what is below that it is raw.
    given = ("-f", "qcow2", "-u", "-F", "qcow2", "-b")
    top, disk = (pool.storageVolLookupByName(one).path() for one in ("top", "disk"))
    hostile.qemu_img("rebase", *given, disk, top)

    with pytest.raises(StorageError, match="p1/top cannot be copied: .*/disk names a backing file"):
        virt.volume_clone("p1", "top", "copy")


def test_what_a_vm_has_as_its_format_and_what_names_other_volumes_is_copied(conn, virt, pool):
    base = pool.createXML(VOLUME.format("base", "raw", "")).path()
    hostile.qemu_img("create", "-f", "raw", base, "1M")
    named(pool, base, "overlay")
    path = pool.storageVolLookupByName("disk").path()
    conn.defineXML(VM.format("file", "qcow2", f"file='{path}'"))

    for one in ("disk", "base", "overlay"):
        assert virt.volume_clone("p1", one, f"copy of {one}") is True


@pytest.mark.parametrize("says", ["iso", "fat"])
def test_what_leads_nowhere_is_copied_by_whichever_name_libvirt_has_for_it(conn, virt, pool, says):
    path = pool.createXML(VOLUME.format("boot", says, "")).path()
    conn.defineXML(VM.format("file", "raw", f"file='{path}'"))
    how = {"strategy": "full", "learn_addresses": False, "validate": False}

    assert virt.volume_clone("p1", "boot", "copy") is True
    cloudvms.clone(conn, "web1", "web2", **how)

    assert len(pool.listVolumes()) == 4
    conn.lookupByName("web2").undefine()


def test_a_partition_is_copied(conn, virt):
    """A pool of a disk's partitions says what is to be on each."""
    disk = conn.storagePoolDefineXML(DISK)
    disk.create()
    path = disk.createXML(VOLUME.format("sdx1", "linux", "")).path()
    conn.defineXML(VM.format("file", "raw", f"file='{path}'"))

    assert virt.volume_clone("d1", "sdx1", "sdx2") is True


def test_an_overlay_on_a_volume_of_a_group_is_copied(conn, virt, pool, tmp_path):
    """Such a volume is a link to its device."""
    group = conn.storagePoolDefineXML(DISK.replace("/dev<", f"{tmp_path}/vg<"))
    group.create()
    path = group.createXML(VOLUME.format("sdx1", "linux", "")).path()
    (tmp_path / "dm-3").write_bytes(bytes(2**20))
    (tmp_path / "vg").mkdir(exist_ok=True)
    (tmp_path / "vg" / "sdx1").unlink(missing_ok=True)
    (tmp_path / "vg" / "sdx1").symlink_to(tmp_path / "dm-3")
    named(pool, path, "overlay")

    assert virt.volume_clone("p1", "overlay", "copy") is True


def test_nor_is_it_by_a_clone_of_salt_cloud(conn, pool):
    path = pool.storageVolLookupByName("disk").path()
    conn.defineXML(VM.format("file", "raw", f"file='{path}'"))
    how = {"strategy": "full", "learn_addresses": False, "validate": False}

    with pytest.raises(StorageError, match="disk is raw to its VM, and libvirt takes it for qcow2"):
        cloudvms.clone(conn, "web1", "web2", **how)

    assert pool.listVolumes() == ["disk"] and "web2" not in conn.listDefinedDomains()


@pytest.mark.parametrize("says", ["cow", "qcow", "qed", "vmdk"])
def test_nor_is_one_of_nobody_whose_format_may_name_files_that_are_not_looked_for(virt, pool, says):
    path = pool.createXML(VOLUME.format("other", says, BELOW.format("/etc/shadow"))).path()
    Path(path).write_bytes(b"x")

    with pytest.raises(StorageError, match=f"p1/other is {says}, .* make it qcow2 by qemu-img"):
        virt.volume_clone("p1", "other", "copy")

    assert sorted(pool.listVolumes()) == ["disk", "other"]


def test_what_has_a_system_to_install_in_it_is_raw_to_all(conn, virt, pool):
    """A disk onto which a guest has written one, or a medium of a VM."""
    path = pool.createXML(VOLUME.format("dvd", "iso", "")).path()
    conn.defineXML(VM.format("file", "raw", f"file='{path}'"))

    assert virt.volume_clone("p1", "dvd", "copy") is True
    cloudvms.clone(conn, "web1", "web2", strategy="full", learn_addresses=False, validate=False)

    conn.lookupByName("web2").undefine()


def test_the_kind_of_a_partition_is_no_format(conn, virt):
    made = conn.storagePoolDefineXML(
        "<pool type='disk'><name>p2</name><source><device path='/dev/sdz'/></source>"
        "<target><path>/dev</path></target></pool>"
    )
    made.create()
    path = made.createXML(VOLUME.format("sdz1", "linux", "")).path()
    conn.defineXML(VM.format("block", "raw", f"dev='{path}'"))
    try:
        assert virt.volume_clone("p2", "sdz1", "sdz2") is True
    finally:
        conn.lookupByName("web1").undefine()
        made.destroy()
        made.undefine()
