"""A volume group is deleted only if no VM has a volume of it, under any name."""

import pytest
from saltvirt.core.errors import StorageError
from saltvirt.xml.storage import storagepool

POOL = """<pool type='logical'><name>{}</name><source><name>{}</name></source>
<target><path>/dev/{}</path></target></pool>"""
DOMAIN = """<domain type='test'><name>d1</name><memory>65536</memory><os><type>hvm</type></os>
<devices><disk type='{}' device='disk'><source {}/><target dev='vda'/></disk></devices></domain>"""


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("block", "dev='/dev/mapper/vg--1-d1'"),
        ("block", "dev='/dev/disk/by-id/dm-name-vg--1-d1'"),
        ("volume", "pool='other' volume='d1'"),
    ],
)
def test_a_volume_that_a_vm_has_by_another_name_keeps_its_group(conn, virt, kind, source):
    for name in ("group", "other"):
        conn.storagePoolDefineXML(POOL.format(name, "vg-1", "vg-1"))
    vm = conn.defineXML(DOMAIN.format(kind, source))

    with pytest.raises(StorageError, match="VM 'd1' has a volume of pool 'group', and all"):
        virt.pool_delete("group")

    vm.undefine()
    assert virt.pool_delete("group") is True


@pytest.mark.parametrize(
    ("group", "path", "is_in_group"),
    [
        ("vg", "/dev/vg/d1", True),
        ("vg", "/dev/vg1/d1", False),
        ("vg", "/dev/mapper/vg-d1", True),
        ("vg", "/dev/mapper/vg-d--1", True),
        ("vg", "/dev/mapper/vg--a-d1", False),
        ("vg-a", "/dev/mapper/vg--a-d1", True),
        ("vg-a", "/dev/mapper/vg-a", False),
    ],
)
def test_the_group_of_a_mapped_volume_follows_from_its_path(group, path, is_in_group):
    pool = storagepool.from_call("p", "logical", None, None, {"name": group})

    assert storagepool.has_device(pool, path) is is_in_group
