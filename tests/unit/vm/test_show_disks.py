"""A VM's disks are shown as Salt 3006 did, without a subprocess."""

import datetime
import json
import os
import struct
import subprocess

import libvirt
import pytest
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect
from saltvirt.storage.images import qcow2
from saltvirt.vm.show.host import showndisks
from saltvirt.xml.edit import readdomain

POOL = "<pool type='{}'><name>{}</name>{}<target><path>{}</path></target></pool>"
VOLUME = "<volume><name>{}</name><capacity>4096</capacity><allocation>512</allocation>{}</volume>"
BASE = "<backingStore><path>/base.raw</path><format type='raw'/></backingStore>"


def disk(source, kind="file", device="disk", driver="<driver name='qemu' type='qcow2'/>", more=""):
    """Return the <disk> vda."""
    text = f"<disk type='{kind}' device='{device}'>{driver}{source}{more}<target dev='vda'/></disk>"
    return readdomain.domain(f"<domain><devices>{text}</devices></domain>")


def qemu_img(*words):
    """Run qemu-img and return what it says."""
    done = subprocess.run(["qemu-img", *map(str, words)], check=True, capture_output=True)
    return done.stdout


class NoPools:
    """A host without a pool."""

    def listAllStoragePools(self, _flags):  # noqa: N802
        """Return none."""
        return []


def shown(root, conn=None, **stats):
    """Return vda as it is shown."""
    blocks = {"vda": stats} if stats else {}
    return showndisks.Disks(conn or NoPools()).describe(root, blocks).get("vda")


@pytest.fixture
def conn():
    """A connection to libvirt's test driver, which has two more pools."""
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False) as opened:
        for kind, name, source in (
            ("dir", "disks", ""),
            ("rbd", "ceph", "<source><host name='mon1'/><name>libvirt</name></source>"),
        ):
            opened.storagePoolCreateXML(POOL.format(kind, name, source, f"/{name}"))
        pool = opened.storagePoolLookupByName("disks")
        pool.createXML(VOLUME.format("web1", BASE))
        yield opened
        for one in pool.listAllVolumes():
            one.delete()
        for name in ("disks", "ceph"):
            opened.storagePoolLookupByName(name).destroy()


def test_a_missing_disk_does_not_spoil_the_answer():
    assert shown(disk("<source file='/missing'/>"))["error"] == (
        "the file is missing or cannot be read"
    )


@pytest.mark.parametrize("source", ["", "<source/>", "<source startupPolicy='optional'/>"])
def test_a_drive_without_a_medium_is_left_out(source):
    assert shown(disk(source, device="cdrom")) is None


def test_a_format_that_is_not_said_is_not_made_up(tmp_path):
    (tmp_path / "d").write_bytes(bytes(4096))

    assert shown(disk(f"<source file='{tmp_path}/d'/>", driver="")) == {
        "file": f"{tmp_path}/d",
        "type": "disk",
        "virtual size": 4096,
        "disk size": os.stat(tmp_path / "d").st_blocks * 512,
        "cluster size": None,
    }


def test_a_chain_is_shown_as_qemu_img_says_it(tmp_path):
    base, middle, top = (tmp_path / name for name in ("base.raw", "middle.qcow2", "top.qcow2"))
    qemu_img("create", "-f", "raw", base, "1M")
    qemu_img("create", "-f", "qcow2", "-F", "raw", "-b", "base.raw", middle)
    qemu_img("create", "-f", "qcow2", "-F", "qcow2", "-b", middle, top, "2M")
    qemu_img("snapshot", "-c", "before \u00e4", top)
    qemu_img("snapshot", "-c", "after", top)
    found = json.loads(qemu_img("info", "--output=json", "--backing-chain", top))

    says = [shown(disk(f"<source file='{top}'/>"))]
    while "backing file" in says[-1]:
        says.append(says[-1]["backing file"])

    assert [one["file"] for one in says] == [one["filename"] for one in found]
    assert [one["file format"] for one in says] == [one["format"] for one in found]
    assert [one["virtual size"] for one in says] == [one["virtual-size"] for one in found]
    assert [one["disk size"] for one in says] == [one["actual-size"] for one in found]
    assert [one["cluster size"] for one in says] == [one.get("cluster-size") for one in found]
    wanted = found[0]["snapshots"]
    taken = says[0]["snapshots"]
    assert [(one["id"], one["tag"], one["vmsize"]) for one in taken] == [
        (one["id"], one["name"], one["vm-state-size"]) for one in wanted
    ]
    times = [datetime.datetime.fromisoformat(one["date"]).timestamp() for one in taken]
    assert [int(time) for time in times] == [one["date-sec"] for one in wanted]
    assert [one["vmclock"] for one in taken] == ["00:00:00", "00:00:00"]


def test_a_chain_that_leads_to_itself_or_nowhere_ends(tmp_path):
    loop, lost, far = (tmp_path / name for name in ("loop", "lost", "far"))
    for path, name in ((loop, "loop"), (lost, "gone"), (far, "nbd://x/y")):
        qemu_img("create", "-f", "qcow2", "-u", "-F", "qcow2", "-b", name, path, "1M")

    depth, at = 0, shown(disk(f"<source file='{loop}'/>"))
    while "backing file" in at:
        depth, at = depth + 1, at["backing file"]

    assert depth == 64 and "error" not in at
    below = shown(disk(f"<source file='{lost}'/>"))["backing file"]
    assert below["error"] == "the file is missing or cannot be read"
    below = shown(disk(f"<source file='{far}'/>"))["backing file"]
    assert below == {"file": "nbd://x/y", "file format": "qcow2"}


def test_nobody_waits_for_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    top = tmp_path / "top"
    qemu_img("create", "-f", "qcow2", "-u", "-F", "qcow2", "-b", "pipe", top, "1M")

    assert "error" in shown(disk(f"<source file='{top}'/>"))["backing file"]


@pytest.mark.parametrize("at", [0, 2**20, 2**63, 2**64 - 1])
@pytest.mark.parametrize("count", [1, 2**32 - 1])
def test_a_list_of_snapshots_that_is_damaged_ends(tmp_path, at, count):
    path = tmp_path / "d.qcow2"
    qemu_img("create", "-f", "qcow2", path, "1M")
    with path.open("r+b") as handle:
        handle.seek(60)
        handle.write(struct.pack(">IQ", count, at))

    assert len(qcow2.snapshots(path)) <= 1024
    assert shown(disk(f"<source file='{path}'/>"))["virtual size"] == 2**20


def test_what_libvirt_knows_below_a_disk_is_said_where_no_file_can_be_read():
    chain = (
        "<backingStore type='file'><format type='qcow2'/><source file='/m'/>"
        "<backingStore type='file'><format type='raw'/><source file='/b'/><backingStore/>"
        "</backingStore></backingStore>"
    )
    one = shown(disk("<source file='/missing'/>", more=chain), capacity=7, allocation=5)

    assert one == {
        "file": "/missing",
        "type": "disk",
        "file format": "qcow2",
        "virtual size": 7,
        "disk size": 5,
        "backing file": {
            "file": "/m",
            "file format": "qcow2",
            "backing file": {"file": "/b", "file format": "raw"},
        },
    }


@pytest.mark.parametrize(
    ("source", "device", "file"),
    [
        (
            "<source protocol='http' name='iso/x.iso' query='a=1&amp;b=2'>"
            "<host name='web.example' port='80'/></source>",
            "cdrom",
            "http://web.example:80/iso/x.iso?a=1&b=2",
        ),
        (
            "<source protocol='ftp' name='x.iso'><host name='web.example'/></source>",
            "cdrom",
            "ftp://web.example/x.iso",
        ),
        ("<source protocol='nbd'><host name='x'/></source>", "disk", "nbd"),
        ("<source protocol='rbd' name='other/web1'/>", "disk", "rbd:other/web1"),
        ("<source protocol='rbd' name='libvirt/web1'/>", "disk", "ceph/web1"),
    ],
)
def test_what_is_on_a_network_is_shown_as_it_was_asked_for(conn, source, device, file):
    assert shown(disk(source, "network", device), conn)["file"] == file


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("file", "<source file='/disks/web1'/>"),
        ("block", "<source dev='/disks/web1'/>"),
        ("volume", "<source pool='disks' volume='web1'/>"),
    ],
)
def test_what_lies_in_a_pool_is_a_volume_of_it(conn, kind, source):
    assert shown(disk(source, kind), conn, capacity=1, allocation=1) == {
        "file": "disks/web1",
        "type": "disk",
        "file format": "qcow2",
        "virtual size": 4096,
        "disk size": 512,
        "backing file": {"file": "/base.raw", "file format": "raw"},
    }


@pytest.mark.parametrize("name", ["nobody/web1", "disks/none"])
def test_a_volume_that_is_gone_keeps_its_name(conn, name):
    pool, volume = name.split("/")
    root = disk(f"<source pool='{pool}' volume='{volume}'/>", "volume")

    assert shown(root, conn) == {"file": name, "type": "disk", "file format": "qcow2"}


def test_pools_are_asked_for_only_what_lies_in_one(conn, monkeypatch, tmp_path):
    asked = []
    for kind, name in (
        (libvirt.virConnect, "listAllStoragePools"),
        (libvirt.virConnect, "storageVolLookupByPath"),
        (libvirt.virStoragePool, "listAllVolumes"),
    ):
        call = getattr(kind, name)
        noted = lambda *given, name=name, call=call: (asked.append(name), call(*given))[1]  # noqa: E731
        monkeypatch.setattr(kind, name, noted)
    disks = showndisks.Disks(conn)

    for path in ("/disks/web1", f"{tmp_path}/a", f"{tmp_path}/b", "/disks-2/web1"):
        disks.describe(disk(f"<source file='{path}'/>"), {})

    assert asked == ["listAllStoragePools", "storageVolLookupByPath"]


def test_a_zvol_is_named(conn):
    assert shown(disk("<source file='/dev/zvol/tank/web1'/>"), conn) == {
        "file": "/dev/zvol/tank/web1",
        "zfs": True,
    }


def test_an_image_below_many_disks_is_read_once(tmp_path, monkeypatch):
    base = tmp_path / "base.qcow2"
    qemu_img("create", "-f", "qcow2", base, "1M")
    for name in ("a", "b", "c"):
        qemu_img("create", "-f", "qcow2", "-b", base, "-F", "qcow2", tmp_path / f"{name}.qcow2")
    read_files, reading = [], showndisks.qcow2.read
    monkeypatch.setattr(
        showndisks.qcow2, "read", lambda path: read_files.append(str(path)) or reading(path)
    )
    disks = showndisks.Disks(NoPools())
    shown_below = [
        disks.describe(disk(f"<source file='{tmp_path / name}.qcow2'/>"), {})["vda"]["backing file"]
        for name in ("a", "b", "c")
    ]
    assert shown_below[0]["virtual size"] == 2**20
    assert shown_below[0] == shown_below[1] == shown_below[2]
    assert read_files.count(str(base)) == 1


@pytest.mark.parametrize("is_there", [True, False])
def test_a_file_of_a_pool_that_does_not_run_is_its_volume_all_the_same(conn, tmp_path, is_there):
    # As Uyuni finds out which pools it starts before a VM.
    path = tmp_path / "web1.qcow2"
    if is_there:
        qemu_img("create", "-q", "-f", "qcow2", path, "1M")
    pool = conn.storagePoolDefineXML(POOL.format("dir", "later", "", tmp_path))
    try:
        found = shown(disk(f"<source file='{path}'/>"), conn)
        deeper = shown(disk(f"<source file='{tmp_path}/a/web1'/>"), conn)
    finally:
        pool.undefine()

    assert found["file"] == "later/web1.qcow2"
    assert found.get("virtual size") == (2**20 if is_there else None)
    assert deeper["file"] == f"{tmp_path}/a/web1"
