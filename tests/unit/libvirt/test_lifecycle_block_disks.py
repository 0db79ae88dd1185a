"""A disk that Salt 3006 defined as a file, and that is a device, is a block disk at the start."""

from pathlib import Path

import libvirt
import pytest
from saltvirt.libvirt.domains import lifecycle
from saltvirt.xml import parse
from saltvirt.xml.storage import blockdisk

DOMAIN = """<domain type='test'><name>old</name><memory>65536</memory><vcpu>1</vcpu>
<os><type>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{device}'/>
<target dev='vda' bus='virtio'/></disk>
<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{file}'/>
<target dev='vdb' bus='virtio'/></disk>
</devices></domain>"""


@pytest.fixture
def conn():
    conn = libvirt.open("test:///default")
    yield conn
    conn.close()


def disks(text):
    return [
        (disk.get("type"), dict(disk.find("source").attrib)) for disk in parse(text).iter("disk")
    ]


def test_a_device_that_is_defined_as_a_file_is_started_as_a_device(conn, tmp_path, monkeypatch):
    file, device = tmp_path / "b.img", tmp_path / "sdz"
    file.touch()
    # No test has a block device of its own.
    monkeypatch.setattr(Path, "is_block_device", lambda path: path == device)
    conn.defineXML(DOMAIN.format(device=device, file=file))

    lifecycle.start(conn, "old")

    assert lifecycle.is_active(conn, "old")
    for text in (lifecycle.inactive_xml(conn, "old"), lifecycle.xml(conn, "old")):
        kinds = [
            (kind, {key: source[key] for key in ("dev", "file") if key in source})
            for kind, source in disks(text)
        ]
        assert kinds == [("block", {"dev": str(device)}), ("file", {"file": str(file)})]


def test_a_definition_without_such_a_disk_is_not_touched(conn, tmp_path):
    conn.defineXML(DOMAIN.format(device=tmp_path / "a", file=tmp_path / "b"))
    before = lifecycle.secure_xml(conn, "old")

    assert not blockdisk.make_block_disks(parse(before), lambda _path: False)
    lifecycle.start(conn, "old")

    assert lifecycle.secure_xml(conn, "old") == before
