"""No volume is deleted that a VM that is off, a snapshot or the trash is based on."""

import contextlib
import dataclasses
import re
from pathlib import Path

import faces
import libvirt
import onrecord
import pytest
import verdicts
from saltvirt.core import locks
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records
from saltvirt.core.options import config
from saltvirt.core.protocol import moveprotocol
from saltvirt.libvirt import reservations
from saltvirt.storage import policies, references, trash, vmvolumes
from saltvirt.storage.verdict import Reference
from test_unreadablechains import POOL, VM, overlay

VOLUME = "<volume><name>{}</name><capacity>1048576</capacity></volume>"
DETACHED = "disk of VM 'deep' is based on it; purge that VM .virt.purge., or detach the disk first"


@pytest.fixture
def host(hypervisor, tmp_path):
    """A host with a trash and a pool, in which is a base."""
    hypervisor.settings = dataclasses.replace(hypervisor.settings, trash_days=7)
    base = overlay(tmp_path / "p1/base.qcow2")
    with hypervisor.libvirt() as conn:
        pool = conn.storagePoolDefineXML(POOL.format(base.parent))
        pool.create()
        pool.createXML(VOLUME.format(base.name))
        hypervisor.conn, hypervisor.pool, hypervisor.base = conn, pool, base
        yield hypervisor
        with contextlib.suppress(libvirt.libvirtError):
            for one in pool.listAllVolumes():
                one.delete()
            pool.destroy()
            pool.undefine()


def by_call(host, name="base.qcow2"):
    """Delete a volume by virt.volume_delete."""
    opts = {"state_dir": host.settings.state_dir}
    assert faces.load("modules", "virt_volume", opts).volume_delete("p1", name) is True


def by_state(host):
    """Delete a pool with all its volumes; what it would do is what it does."""
    opts = {"state_dir": host.settings.state_dir}
    states = faces.load("states", "virt_pool", opts)
    answers = []
    for is_test in (True, False):
        states.__opts__["test"] = is_test
        answers.append(states.pool_deleted("p1", purge=True))
    would, done = answers
    assert (would["result"] is False) == (done["result"] is False)
    if not done["result"]:
        assert done["changes"] == {} and would["comment"] == done["comment"]
        raise StorageError(done["comment"])


@pytest.fixture(params=[by_call, by_state])
def delete(request, host):
    """Delete the base."""
    return lambda: request.param(host)


def stays(host, delete, why):
    """Have the base not deleted, with a reason."""
    with pytest.raises(StorageError, match=why):
        delete()
    assert "base.qcow2" in host.pool.listVolumes()


@pytest.mark.parametrize("depth", [1, 3])
def test_what_a_disk_of_a_vm_that_is_off_is_based_on_stays(host, tmp_path, delete, depth):
    top = host.base
    for number in range(depth):
        top = overlay(tmp_path / f"disks/{number}.qcow2", top)
    vm = host.conn.defineXML(VM.format("file", f"file='{top}'"))

    stays(host, delete, f"volume p1/base.qcow2 stays: a {DETACHED}")

    vm.undefine()
    delete()


@pytest.mark.parametrize(
    "write",
    [
        lambda virt, path: virt.volume_resize("p1", "base.qcow2", "512k", shrink=True),
        lambda virt, path: virt.volume_upload("p1", "base.qcow2", str(path)),
    ],
    ids=["shrink", "upload"],
)
def test_nor_is_it_cut_off_or_written_over(host, tmp_path, write):
    top = overlay(tmp_path / "disks/0.qcow2", host.base)
    virt = faces.load("modules", "virt_volume", {"state_dir": host.settings.state_dir})
    vm = host.conn.defineXML(VM.format("file", f"file='{top}'"))
    before = host.base.read_bytes(), host.pool.storageVolLookupByName("base.qcow2").info()
    try:
        with pytest.raises(StorageError, match=f"volume p1/base.qcow2 stays: a {DETACHED}"):
            write(virt, tmp_path / "disks/0.qcow2")
    finally:
        vm.undefine()
    after = host.base.read_bytes(), host.pool.storageVolLookupByName("base.qcow2").info()
    assert after == before


def test_what_an_external_snapshot_goes_back_to_is_not_wiped(host, monkeypatch):
    reference = Reference(
        source=policies.SNAPSHOT, owner="deep", reason="a snapshot of VM 'deep' needs it"
    )
    found = {
        **references.PROVIDERS,
        policies.SNAPSHOT: lambda _host: iter([(str(host.base), reference)]),
    }
    # Mocked: the test driver takes no external snapshot.
    monkeypatch.setattr(references, "PROVIDERS", found)
    virt = faces.load("modules", "virt_volume", {"state_dir": host.settings.state_dir})

    with pytest.raises(StorageError, match="a snapshot of VM 'deep' needs it"):
        virt.volume_wipe("p1", "base.qcow2")


def test_a_hard_link_of_a_disk_is_not_wiped(host, tmp_path):
    own = tmp_path / "disks/own.qcow2"
    own.parent.mkdir()
    own.hardlink_to(host.base)
    vm = host.conn.defineXML(VM.format("file", f"file='{own}'"))
    virt = faces.load("modules", "virt_volume", {"state_dir": host.settings.state_dir})
    try:
        with pytest.raises(
            StorageError, match="p1/base.qcow2 is not wiped: it is a hard link of .*own.qcow2"
        ):
            virt.volume_wipe("p1", "base.qcow2")
    finally:
        vm.undefine()


def test_what_a_pool_alone_knows_to_be_below_a_disk_stays(host, delete):
    # As of a logical volume, and of what is on a server.
    overlay(host.base.with_name("top"))
    backing = f"<backingStore><path>{host.base}</path></backingStore></volume>"
    host.pool.createXML(VOLUME.format("top").replace("</volume>", backing))
    vm = host.conn.defineXML(VM.format("volume", "pool='p1' volume='top'"))

    stays(host, delete, f"volume p1/base.qcow2 stays: a {DETACHED}")

    vm.undefine()
    delete()


def test_no_file_of_this_host_is_looked_for_that_another_hosts_vm_has(host, tmp_path, monkeypatch):
    gone = overlay(tmp_path / "disks/gone.qcow2")
    gone.unlink()
    host.conn.defineXML(VM.format("file", f"file='{gone}'"))
    # The test driver is always here.
    monkeypatch.setattr(config, "is_local", lambda _uri: False)

    by_call(host)


def test_what_another_hosts_pool_knows_to_be_below_a_disk_stays(host, monkeypatch):
    backing = f"<backingStore><path>{host.base}</path></backingStore></volume>"
    host.pool.createXML(VOLUME.format("top").replace("</volume>", backing))
    host.conn.defineXML(VM.format("volume", "pool='p1' volume='top'"))
    monkeypatch.setattr(config, "is_local", lambda _uri: False)

    stays(host, lambda: by_call(host), f"volume p1/base.qcow2 stays: a {DETACHED}")


def test_what_a_disk_is_based_on_grows_with_shrink_too(host, tmp_path, monkeypatch):
    top = overlay(tmp_path / "disks/top.qcow2", host.base)
    host.conn.defineXML(VM.format("file", f"file='{top}'"))
    sizes = []
    # The test driver does not resize.
    monkeypatch.setattr(libvirt.virStorageVol, "resize", lambda *of: sizes.append(of[1:]))
    opts = {"state_dir": host.settings.state_dir}
    resize = faces.load("modules", "virt_volume", opts).volume_resize

    # Whoever reads it through another disk misses nothing of a larger one.
    assert resize("p1", "base.qcow2", "2MiB", shrink=True) is True
    assert sizes == [(2 << 20, 0)]


def test_the_own_disk_of_a_vm_that_is_off_goes_as_on_3006(host, delete):
    host.conn.defineXML(VM.format("volume", "pool='p1' volume='base.qcow2'"))

    delete()


def test_the_disks_of_a_vm_that_is_off_go_one_by_one(host, tmp_path):
    names = [overlay(tmp_path / f"p1/{name}.qcow2", host.base).name for name in ("one", "two")]
    host.pool.refresh()
    for name in names:
        if name not in host.pool.listVolumes():
            host.pool.createXML(VOLUME.format(name))
    disks = "".join(
        f"<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>"
        f"<source file='{tmp_path}/p1/{name}'/><target dev='vd{letter}'/></disk>"
        for name, letter in zip(names, "ab", strict=True)
    )
    vm = host.conn.defineXML(
        "<domain type='test'><name>deep</name><memory>1024</memory><os><type>hvm</type></os>"
        f"<devices>{disks}</devices></domain>"
    )
    try:
        for name in names:
            by_call(host, name)
            # What the driver has of a pool is no file.
            (tmp_path / "p1" / name).unlink(missing_ok=True)
    finally:
        vm.undefine()

    assert host.pool.listVolumes() == ["base.qcow2"]


def test_what_a_disk_in_the_trash_is_based_on_stays(host, tmp_path, delete):
    top = overlay(tmp_path / "disks/top.qcow2", host.base)
    with trash.fill_trash(host.settings, "web2", reason="a test") as drop:
        drop(verdicts.free(top))

    stays(host, delete, r"p1/base.qcow2 stays: a disk in the trash .entry web2-\w+. is based on it")

    trash.empty(host.settings)
    delete()


def test_nothing_goes_while_a_vm_is_out_of_reach(host, tmp_path, delete):
    middle = overlay(tmp_path / "disks/middle.qcow2", host.base)
    host.conn.defineXML(
        VM.format("file", f"file='{overlay(tmp_path / 'disks/top.qcow2', middle)}'")
    )
    middle.unlink()

    stays(
        host,
        delete,
        "p1/base.qcow2 stays: a VM may be .*middle.qcow2 of VM 'deep' .*mount its file",
    )


@pytest.mark.parametrize("is_away", [True, False])
def test_nothing_goes_while_an_entry_of_the_trash_cannot_be_read(host, tmp_path, delete, is_away):
    with trash.fill_trash(host.settings, "web2", reason="a test") as drop:
        drop(verdicts.free(overlay(tmp_path / "disks/top.qcow2", host.base)))
    if is_away:
        (tmp_path / "disks").rename(tmp_path / "away")
    else:
        (record,) = (reservations.folder(host.settings) / trash.PURPOSE).glob("*.json")
        record.write_text("{")

    stays(host, delete, r"base.qcow2 stays: entry 'web2-\w+' of the trash may be based on it: ")


@pytest.mark.parametrize("purpose", ["build", "purge"])
def test_what_a_vm_that_is_made_or_removed_is_based_on_stays(host, tmp_path, delete, purpose):
    top = str(overlay(tmp_path / "disks/top.qcow2", host.base))
    says = getattr(onrecord, purpose)(paths=[top])
    phase = moveprotocol.MAKING if purpose == "build" else "removing"
    with records.hold_record(reservations.folder(host.settings), purpose, "web1") as held:
        held.begin("t1", phase, **says)

    stays(host, delete, "base.qcow2 stays: a disk is based on it, one of VM 'web1', which is being")


@pytest.mark.parametrize("kind", ["file", "volume"])
def test_what_an_external_snapshot_goes_back_to_stays(host, tmp_path, delete, monkeypatch, kind):
    """It was reverted: no disk of the VM is based on what a later snapshot has."""
    middle = overlay(tmp_path / "p1/middle.qcow2", host.base)
    host.pool.createXML(VOLUME.format(middle.name))
    source = f"file='{middle}'" if kind == "file" else "pool='p1' volume='middle.qcow2'"
    vm = host.conn.defineXML(VM.format(kind, source))
    vm.snapshotCreateXML("<domainsnapshot><name>s2</name></domainsnapshot>")
    # The test driver makes internal ones alone, of which the disk is the VM's own.
    by_call(host, middle.name)
    host.pool.createXML(VOLUME.format(middle.name))
    read = libvirt.virDomainSnapshot.getXMLDesc
    monkeypatch.setattr(
        libvirt.virDomainSnapshot,
        "getXMLDesc",
        lambda *of: re.sub("snapshot='internal'", "snapshot='external'", read(*of)),
    )
    now = overlay(tmp_path / "disks/now.qcow2")
    uuid = f"<uuid>{vm.UUIDString()}</uuid><memory"
    host.conn.defineXML(VM.format("file", f"file='{now}'").replace("<memory", uuid))

    needs = "stays: a snapshot of VM 'deep' needs it; delete that .virt.delete_snapshots. first"
    stays(host, delete, needs)
    stays(host, lambda: by_call(host, middle.name), f"volume p1/middle.qcow2 {needs}")

    vm.snapshotLookupByName("s2").delete()
    by_call(host, middle.name)
    # What the driver has of a pool is no file.
    middle.unlink(missing_ok=True)
    delete()


@pytest.fixture
def meanwhile(host, monkeypatch):
    """Have something done after the first volume of the pool is deleted; the lock is free then."""

    def call(work):
        delete, held = libvirt.virStorageVol.delete, vmvolumes.hold_host_lock
        gone = []

        def deletes(volume, flags=0):
            assert locks.is_held(Path(host.settings.state_dir, "claims.lock"))
            gone.append(volume.name())
            return delete(volume, flags)

        @contextlib.contextmanager
        def begun(settings):
            with held(settings):
                yield
            if len(gone) == 1:
                work()
                gone.append("")

        state = faces.load("states", "virt_pool", {"state_dir": host.settings.state_dir})
        with monkeypatch.context() as patched:
            patched.setattr(libvirt.virStorageVol, "delete", deletes)
            patched.setattr(vmvolumes, "hold_host_lock", begun)
            return state.pool_deleted("p1", purge=True)

    host.pool.createXML(VOLUME.format("a.qcow2"))
    overlay(host.base.with_name("a.qcow2"))
    return call


def test_each_volume_is_looked_at_again_under_the_lock_that_is_held_over_it(
    host, tmp_path, meanwhile
):
    def work():
        left = host.pool.listVolumes()[0]
        top = overlay(tmp_path / "disks/top.qcow2", host.base.with_name(left))
        host.conn.defineXML(VM.format("file", f"file='{top}'"))

    said = meanwhile(work)

    assert said["result"] is False and "a disk of VM 'deep' is based on it" in said["comment"]
    (gone,) = said["changes"]["deleted_volumes"]
    assert host.pool.listVolumes() == [{"a.qcow2": "base.qcow2", "base.qcow2": "a.qcow2"}[gone]]
    assert host.pool.isActive()


def test_a_pool_that_got_a_volume_meanwhile_stays_with_it(host, meanwhile):
    said = meanwhile(lambda: host.pool.createXML(VOLUME.format("new.qcow2")))

    assert "got new volumes meanwhile (new.qcow2), so the pool stays" in said["comment"]
    assert (host.pool.listVolumes(), host.pool.isActive()) == (["new.qcow2"], 1)
    assert sorted(said["changes"]["deleted_volumes"]) == ["a.qcow2", "base.qcow2"]


def test_a_vm_whose_own_disk_has_gone_with_the_pool_holds_up_no_other_volume(host, meanwhile):
    host.conn.defineXML(VM.format("file", f"file='{host.base}'"))
    names = sorted(host.pool.listVolumes())

    said = meanwhile(lambda: host.base.unlink(missing_ok=True))

    assert said["result"] is True and sorted(said["changes"]["deleted_volumes"]) == names
