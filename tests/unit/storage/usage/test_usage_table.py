"""The table of what keeps a file from which use: each cell of it is tried on a host."""

import os
import re
import subprocess
import sys
from dataclasses import replace

import libvirt
import onrecord
import pytest
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records
from saltvirt.core.protocol import moveprotocol
from saltvirt.libvirt import departedvms, reservations
from saltvirt.libvirt.domains import snapshots
from saltvirt.storage import policies, trash, usage
from saltvirt.storage.verdict import Verdict
from usagekit import disk_image, trash_place

VOLUME = """<volume><name>{}</name><capacity>1048576</capacity><target>
<format type='qcow2'/></target>{}</volume>"""
_EXTERNAL = """<disks><disk name='vda' snapshot='external'>
<source file='{}'/></disk></disks>"""
# Holds bytes 100 to 300 of a file, as QEMU does, until its standard input ends.
_HOLD = """import fcntl, struct, sys
handle = open(sys.argv[1], "rb")
fcntl.fcntl(handle, 37, struct.pack("hhqqi", fcntl.F_RDLCK, 0, 100, 200, 0))
print("held", flush=True)
sys.stdin.read()
"""


def _disk(host, monkeypatch):
    host.define("db1", host.file)


def _backing(host, monkeypatch):
    host.define("db1", disk_image(host.root / "disks/db1.qcow2", host.file))


def _pool_disk(host, monkeypatch):
    pool = host.conn.storagePoolLookupByName("default-pool")
    pool.createXML(VOLUME.format("base.qcow2", ""))
    host.define("db1", "default-pool/base.qcow2", kind="volume")
    return {"path": "default-pool/base.qcow2"}


def _pool_backing(host, monkeypatch):
    _pool_disk(host, monkeypatch)
    pool = host.conn.storagePoolLookupByName("default-pool")
    backing = "<backingStore><path>/default-pool/base.qcow2</path></backingStore>"
    pool.createXML(VOLUME.format("db1.qcow2", backing))
    host.define("db1", "default-pool/db1.qcow2", kind="volume")
    return {"path": "default-pool/base.qcow2"}


def _snapshot_of(host, name, *, is_own):
    """Take an internal snapshot of a VM's disk, and give the VM another disk."""
    host.define(name, host.file)
    snapshots.take(host.conn, name, "s1", is_external=False, is_quiesced=False)
    if not is_own:
        host.define(name, disk_image(host.root / "disks/other.qcow2"))


def _externally(host, monkeypatch, name):
    """Mocked: the test driver makes internal snapshots alone."""
    read = libvirt.virDomainSnapshot.getXMLDesc
    text = _EXTERNAL.format(host.root / "disks/above.qcow2")

    def says(snapshot, *flags):
        return re.sub("<disks>.*</disks>", text, read(snapshot, *flags), flags=re.DOTALL)

    _snapshot_of(host, name, is_own=False)
    monkeypatch.setattr(libvirt.virDomainSnapshot, "getXMLDesc", says)


def _snapshot(host, monkeypatch):
    _externally(host, monkeypatch, "db1")


def _internal(host, monkeypatch):
    _snapshot_of(host, "db1", is_own=False)


def _own_snapshot(host, monkeypatch):
    _externally(host, monkeypatch, "web1")
    return {"but": ["web1"]}


def _own_internal(host, monkeypatch):
    _snapshot_of(host, "web1", is_own=True)
    return {"but": ["web1"]}


def _saved(host, monkeypatch):
    vm = host.define("db1", host.file)
    vm.create()
    vm.managedSave()


def _kept(host, monkeypatch):
    vm = host.define("db1", host.file)
    departedvms.keep_definition(host.settings, "db1", vm.XMLDesc())
    vm.undefine()


def _boot(host, monkeypatch):
    other = disk_image(host.root / "disks/db1.qcow2")
    host.define("db1", other, boot=f"<kernel>{host.file}</kernel>")


def _record(host, purpose, phase, facts):
    place = reservations.folder(host.settings)
    with records.hold_record(place, purpose, "db1") as held:
        held.begin("t1", phase, **facts)


def _coming(host, monkeypatch):
    _record(host, "build", moveprotocol.MAKING, onrecord.build(paths=[str(host.file)]))


def _going(host, monkeypatch):
    _record(host, "purge", "removing", onrecord.purge(paths=[str(host.file)]))


def _recorded(host, monkeypatch):
    above = disk_image(host.root / "disks/db1.qcow2", host.file)
    _record(host, "build", moveprotocol.MAKING, onrecord.build(paths=[str(above)]))


def _trash(host, monkeypatch):
    above = disk_image(host.images / "db1.qcow2", host.file)
    free = Verdict(path=str(above), policy=policies.DELETE)
    with trash.fill_trash(host.settings, "db1", reason="a test", days=7) as put:
        put(free)


def _other_trash(host, monkeypatch):
    above = disk_image(host.images / "db1.qcow2", host.file)
    place = trash_place(above)
    place.parent.mkdir(parents=True)
    above.rename(place)


def _file(host, monkeypatch):
    disk_image(host.images / "left.qcow2", host.file)


def _cached(host, monkeypatch):
    path = host.images / "base" / f"{'a' * 64}.qcow2"
    path.parent.mkdir()
    host.file.rename(path)
    return {"path": str(path)}


def _golden(host, monkeypatch):
    _cached(host, monkeypatch)
    os.link(host.images / "base" / f"{'a' * 64}.qcow2", host.file)


def _link(host, monkeypatch):
    other = host.root / "disks/db1.qcow2"
    other.parent.mkdir()
    os.link(host.file, other)
    host.define("db1", other)


def _open(host, monkeypatch):
    argv = [sys.executable, "-c", _HOLD, str(host.file)]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"held\n"
    return {"child": child}


def _open_shared(host, monkeypatch):
    _other_hosts(host, monkeypatch)
    return _open(host, monkeypatch)


def _no_chain(host, monkeypatch):
    host.define("db1", host.root / "not mounted/db1.qcow2")


def _no_trash(host, monkeypatch):
    above = disk_image(host.images / "db1.qcow2", disk_image(host.root / "disks/gone.qcow2"))
    free = Verdict(path=str(above), policy=policies.DELETE)
    with trash.fill_trash(host.settings, "db1", reason="a test", days=7) as put:
        put(free)
    (host.root / "disks/gone.qcow2").unlink()


def _no_record(host, monkeypatch):
    _coming(host, monkeypatch)
    (path,) = reservations.folder(host.settings).rglob("build/*.json")
    path.write_text("torn")


def _other_hosts(host, monkeypatch):
    host.settings = replace(host.settings, shared_paths=[str(host.images)])


SCENES = {
    policies.DISK: _disk,
    policies.BACKING: _backing,
    policies.POOL_DISK: _pool_disk,
    policies.POOL_BACKING: _pool_backing,
    policies.SNAPSHOT: _snapshot,
    policies.INTERNAL: _internal,
    policies.OWN_SNAPSHOT: _own_snapshot,
    policies.OWN_INTERNAL: _own_internal,
    policies.SAVED: _saved,
    policies.KEPT: _kept,
    policies.BOOT: _boot,
    policies.COMING: _coming,
    policies.GOING: _going,
    policies.RECORD: _recorded,
    policies.TRASH: _trash,
    policies.OTHER_TRASH: _other_trash,
    policies.FILE: _file,
    policies.CACHED: _cached,
    policies.GOLDEN: _golden,
    policies.LINK: _link,
    policies.OPEN: _open,
    policies.OPEN_SHARED: _open_shared,
    policies.NO_CHAIN: _no_chain,
    policies.NO_TRASH: _no_trash,
    policies.NO_RECORD: _no_record,
    policies.ELSEWHERE: _other_hosts,
}
ROWS = {row.split()[0]: row.split()[1:] for row in policies.TABLE.strip().splitlines()[1:]}
NAMES = policies.TABLE.strip().splitlines()[0].split()


def test_each_row_of_the_table_has_a_scene():
    assert set(ROWS) == set(SCENES)


@pytest.mark.parametrize("source", ROWS)
def test_a_source_keeps_a_file_from_the_uses_that_the_table_marks(host, monkeypatch, source):
    scene = SCENES[source](host, monkeypatch) or {}
    path = str(scene.get("path", host.file))
    try:
        found = {}
        for name in NAMES:
            index = usage.index(
                host.conn, host.settings, but=scene.get("but", []), beside_files=[path]
            )
            verdict = index.verdict(policies.POLICIES[name], path)
            sources = [one.source for one in verdict.used_by]
            sources += [doubt for doubt, _reason in verdict.doubts]
            found[name] = "x" if source in sources else "."
    finally:
        if "child" in scene:
            scene["child"].communicate()

    assert found == dict(zip(NAMES, ROWS[source], strict=True))


@pytest.mark.parametrize("source", ROWS)
def test_a_reason_is_one_clause_that_ends_with_what_to_do(host, monkeypatch, source):
    scene = SCENES[source](host, monkeypatch) or {}
    path = str(scene.get("path", host.file))
    marked = [name for name, mark in zip(NAMES, ROWS[source], strict=True) if mark == "x"]
    index = usage.index(host.conn, host.settings, but=scene.get("but", []), beside_files=[path])
    verdict = index.verdict(policies.POLICIES[marked[0]], path)
    if "child" in scene:
        scene["child"].communicate()

    with pytest.raises(StorageError, match=f"^{re.escape(path)} stays: ") as raised:
        verdict.refuse(f"{path} stays")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_nothing_needs_is_free_for_every_use(host, name):
    host.define("db1", disk_image(host.root / "disks/db1.qcow2"))
    index = usage.index(host.conn, host.settings, beside_files=[str(host.file)])

    assert index.verdict(policies.POLICIES[name], str(host.file)).is_free
