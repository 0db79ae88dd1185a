"""A host moves a disk into another folder: the disk of a stopped VM, and what a crash leaves."""

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from clonekit import has, info
from saltvirt.core.errors import BadArgument, LibvirtRefused, NameTaken, StorageError
from saltvirt.core.journal import records
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import lifecycle, snapshots
from saltvirt.storage import ownermark, sharing, trash
from saltvirt.storage.sharing import OtherHostsUsage
from saltvirt.vm.clone.host import clonesource
from saltvirt.vm.diskmove.host import moving
from saltvirt.vm.power.host import startlock
from saltvirt.vm.purge.host import purge
from saltvirt.vm.recovery.host import unfinished
from saltvirt.vm.show.host import inspect
from saltvirt.vm.update.host.single import Call
from saltvirt.xml import parse
from saltvirt.xml.domain import domain

CALL, TEST = Call(vm="web1"), Call(vm="web1", test=True)
POOL = "<pool type='{}'><name>fast</name><target><path>{}</path></target></pool>"


@pytest.fixture
def fast(tmp_path):
    """A folder for disks, beside that of the images."""
    folder = tmp_path / "fast"
    folder.mkdir()
    return folder


@pytest.fixture
def vm(hypervisor, stopped):
    """A host with a stopped VM: an overlay called system, and a disk called data."""
    hypervisor.conn = stopped
    yield hypervisor
    del hypervisor.conn


def disks(conn, name="web1"):
    """Return ``{target: path}`` of the definition's disks."""
    content = domain.read(parse(lifecycle.inactive_xml(conn, name)))
    return {vm_disk.target["dev"]: vm_disk.path for vm_disk in content.disks}


def path_of(vm, name):
    """Return the file of a disk in the image folder."""
    return Path(vm.settings.images) / f"web1_{name}.qcow2"


def move(vm, name="system", pool=None, call=CALL, **more):
    """Move a disk as the host does."""
    return moving.move_disk(vm.context, call, name, str(pool or vm.root / "fast"), **more)


def on_record(vm):
    """Return the phases of the moves on record."""
    folder = reservations.folder(vm.settings)
    return [record.phase for record in records.read_records(folder, "diskmove")]


def marks(folder):
    """Return the marks in a folder."""
    return [path.name for path in Path(folder).glob(".salt-virt-*") if path.is_file()]


@pytest.mark.parametrize("name", ["system", "data"])
def test_the_disk_of_a_stopped_vm_goes_and_its_old_file_is_in_the_trash(vm, fast, name):
    old, before = path_of(vm, name), disks(vm.conn)
    new = fast / old.name
    backing = info(old).get("full-backing-filename")

    answer = move(vm, name)

    assert (answer["file"], answer["old"], answer["live"]) == (str(new), str(old), False)
    (target,) = [key for key, path in before.items() if path == str(old)]
    assert answer["device"] == target and answer["restart"] is False
    assert disks(vm.conn) == {**before, target: str(new)}
    assert has(new, 7) and info(new).get("full-backing-filename") == backing
    assert not old.exists() and marks(fast) == []
    assert trash.list_entries(vm.settings)[answer["trash"]]["files"] == [str(old)]
    assert answer["outcome"] == (
        f"disk {target} moved from {old} to {new} while the VM was off; its old file is in the "
        f"trash ({answer['trash']})"
    )
    assert on_record(vm) == [] and ownermark.read_owner(new).vm == "web1"


def test_the_same_call_again_says_that_the_disk_is_there(vm, fast):
    new = move(vm)["file"]

    again = move(vm)

    assert again["outcome"] == f"disk vda is in {fast} already; nothing was moved"
    assert (again["file"], again["trash"]) == (new, None) and Path(new).exists()


def test_a_disk_comes_back_by_the_same_call_with_its_former_folder(vm, fast):
    before = disks(vm.conn)
    move(vm)
    move(vm, pool=vm.settings.images)
    assert disks(vm.conn) == before and has(path_of(vm, "system"), 7)


def test_holes_stay_holes(vm, fast):
    old = path_of(vm, "data")
    raw = old.with_suffix(".raw")
    with raw.open("wb") as handle:
        handle.truncate(64 << 20)
        handle.seek(32 << 20)
        handle.write(b"x" * 4096)
    text = lifecycle.secure_xml(vm.conn, "web1")
    text = text.replace(str(old), str(raw))
    position = text.index(str(raw))
    begin = text.rindex("<disk", 0, position)
    text = (
        text[:begin] + text[begin:position].replace("type='qcow2'", "type='raw'") + text[position:]
    )
    lifecycle.define(vm.conn, text)

    answer = move(vm, "vdb")

    new = Path(answer["file"])
    assert new.stat().st_size == 64 << 20 and new.stat().st_blocks * 512 <= 1 << 20
    assert new.read_bytes()[32 << 20 :][:4096] == b"x" * 4096


def test_a_dry_run_says_what_would_be_moved_and_changes_nothing(vm, fast):
    before = disks(vm.conn)

    answer = move(vm, call=TEST)

    old = path_of(vm, "system")
    text = f"disk vda would be moved from {old} to {fast / old.name}: "
    assert answer["outcome"].startswith(text)
    assert answer["outcome"].endswith("of 8.0M, while the VM is off")
    assert disks(vm.conn) == before and list(fast.iterdir()) == [] and on_record(vm) == []


def test_progress_is_reported(vm, fast):
    move(vm)
    stages = [stage for stage, _figures in vm.said[-2:]]
    assert stages == ["Copying", "Checking"]
    assert vm.said[-2][1]["detail"].startswith("disk vda: 0 % of ")


@pytest.mark.parametrize(
    ("kind", "text"),
    [("dir", ""), ("logical", "is of type logical, and a disk is moved into a pool of files")],
)
def test_a_pool_is_named_and_only_one_of_files(vm, fast, kind, text):
    pool = vm.conn.storagePoolDefineXML(POOL.format(kind, fast))
    pool.create()
    try:
        if text:
            with pytest.raises(BadArgument, match=text):
                move(vm, pool="fast")
        else:
            assert move(vm, pool="fast")["file"] == str(fast / "web1_system.qcow2")
        with pytest.raises(StorageError, match="no pool 'slow' on this host"):
            move(vm, pool="slow")
    finally:
        pool.destroy()
        pool.undefine()


def test_a_file_of_that_name_stays_and_so_does_the_disk(vm, fast):
    (fast / "web1_system.qcow2").write_text("another")

    with pytest.raises(StorageError, match="is there already"):
        move(vm)

    assert disks(vm.conn)["vda"] == str(path_of(vm, "system")) and on_record(vm) == []
    assert marks(fast) == [] and (fast / "web1_system.qcow2").read_text() == "another"


def test_room_is_checked_before_anything_is_written(vm, fast):
    vm.settings = replace(vm.settings, disk_reserve_mib=1 << 40)
    with pytest.raises(StorageError, match="disk vda is not moved: it takes .*disk_reserve_mib"):
        move(vm)
    assert list(fast.iterdir()) == []


@pytest.mark.parametrize(
    ("module", "name", "value", "text"),
    [
        (snapshots, "names", ["s1"], r"has snapshots \(s1\).* delete them first"),
        (lifecycle, "saved", {"web1"}, "has a saved state"),
        (lifecycle, "list_domains_with_checkpoints", {"web1"}, "has checkpoints"),
    ],
)
def test_what_needs_the_present_file_is_named(vm, fast, monkeypatch, module, name, value, text):
    monkeypatch.setattr(module, name, lambda *_: value)
    with pytest.raises(LibvirtRefused, match=text):
        move(vm)
    assert list(fast.iterdir()) == []


def test_a_disk_that_another_vm_is_based_on_stays(vm, fast):
    overlay = Path(vm.settings.images) / "web2_system.qcow2"
    command = f"qemu-img create -q -f qcow2 -F qcow2 -b {path_of(vm, 'system')} {overlay}"
    assert os.system(command) == 0
    text = lifecycle.secure_xml(vm.conn, "web1").replace("<name>web1<", "<name>web2<")
    text = text.replace(lifecycle.uuid(vm.conn, "web1"), "0" * 8 + "-1111-2222-3333-" + "4" * 12)
    lifecycle.define(vm.conn, text.replace(str(path_of(vm, "system")), str(overlay)))

    with pytest.raises(StorageError, match="has to stay, so nothing is changed.*'web2'"):
        move(vm)

    assert path_of(vm, "system").exists() and list(fast.iterdir()) == []


def test_the_master_is_asked_about_a_shared_file(vm, fast):
    vm.settings = replace(vm.settings, shared_paths=(vm.settings.images,))
    with pytest.raises(sharing.AskAll, match="salt-run virt.move_disk web1 vda"):
        move(vm)
    path = str(path_of(vm, "system"))
    used = OtherHostsUsage(used={path: "hyper2: VM 'web2' has it as a disk"})
    with pytest.raises(StorageError, match="hyper2: VM 'web2' has it"):
        move(vm, other_hosts=used)
    assert move(vm, other_hosts=OtherHostsUsage(free=frozenset([path])))["trash"]


def test_a_vm_without_a_definition_is_refused(vm, fast, monkeypatch):
    monkeypatch.setattr(lifecycle, "is_persistent", lambda *_: False)
    with pytest.raises(LibvirtRefused, match="has no definition that could be changed"):
        move(vm)


@pytest.mark.parametrize("point", ["before-copying", "copying", "before-switching", "switching"])
def test_a_move_killed_before_the_switch_is_undone(vm, fast, point):
    before = disks(vm.conn)
    vm.dies(lambda: move(vm), f"diskmove.{point}")
    with vm.libvirt() as conn:
        unfinished.settle(conn, vm.settings)
        assert disks(conn) == before and path_of(vm, "system").exists()
        assert [path for path in fast.iterdir() if path.name.startswith("web1")] == []
        assert on_record(vm) == [] and (point == "before-copying" or marks(fast) == [])
        assert move(vm)["trash"] and has(fast / "web1_system.qcow2", 7)


@pytest.mark.parametrize("point", ["before-moved", "moved", "end"])
def test_a_move_killed_after_the_switch_is_finished_by_the_same_call(vm, fast, point):
    vm.dies(lambda: move(vm), f"diskmove.{point}")
    with vm.libvirt() as conn:
        assert move(vm)["outcome"].endswith("already; nothing was moved")
        assert disks(conn)["vda"] == str(fast / "web1_system.qcow2")
        assert not path_of(vm, "system").exists() and on_record(vm) == []
        (entry,) = trash.list_entries(vm.settings).values()
        assert entry["files"] == [str(path_of(vm, "system"))]


def test_the_first_copy_of_a_killed_switch_goes_into_the_trash_and_not_for_good(vm, fast):
    vm.dies(lambda: move(vm), "diskmove.switching")
    with vm.libvirt() as conn:
        unfinished.settle(conn, vm.settings)
        (entry,) = trash.list_entries(vm.settings).values()
        assert entry["files"] == [str(fast / "web1_system.qcow2")]


def test_an_interrupted_move_is_shown_and_settled_by_a_purge(vm, fast):
    vm.dies(lambda: move(vm), "diskmove.moved")
    with vm.libvirt() as conn:
        assert reservations.find_unfinished(vm.settings) == ["web1"]
        with pytest.raises(NameTaken, match="salt-run virt.move_disk web1 vda pool="):
            reservations.refuse_building(vm.settings, "web1")
        purge.purge(conn, vm.settings, "web1")
        assert on_record(vm) == [] and not (fast / "web1_system.qcow2").exists()


def test_a_vm_that_is_gone_keeps_both_files(vm, fast, caplog):
    vm.dies(lambda: move(vm), "diskmove.switching")
    (vm.definitions / "web1.xml").unlink()
    with vm.libvirt() as conn:
        unfinished.settle(conn, vm.settings)
    assert (fast / "web1_system.qcow2").exists() and path_of(vm, "system").exists()
    assert "these files stay, as the disk was changed since" in caplog.text


def test_a_file_that_another_host_makes_at_the_path_stays(vm, fast):
    vm.dies(lambda: move(vm), "diskmove.copying")
    (fast / "web1_system.qcow2").write_text("of another host")
    with vm.libvirt() as conn:
        unfinished.settle(conn, vm.settings)
    assert (fast / "web1_system.qcow2").read_text() == "of another host"
    assert on_record(vm) == [] and marks(fast) == []


def test_a_vm_that_is_used_while_it_is_copied_keeps_its_disk(vm, fast, monkeypatch):
    old, copy = path_of(vm, "system"), moving.clone.copy

    def used(*given):
        copy(*given)
        os.utime(old)

    monkeypatch.setattr(moving.clone, "copy", used)
    with pytest.raises(LibvirtRefused, match="disk vda was used while it was copied"):
        move(vm)
    assert disks(vm.conn)["vda"] == str(old) and on_record(vm) == []
    assert list(fast.iterdir()) == []


def test_a_copy_that_differs_is_removed(vm, fast, monkeypatch):
    def half(_source, target, *_more):
        Path(target).write_bytes(b"half")

    # A disk that returns other data than was written cannot be made here.
    monkeypatch.setattr(moving.clone, "copy", half)
    with pytest.raises(StorageError, match="differs from .* after the copy"):
        move(vm)
    assert disks(vm.conn)["vda"] == str(path_of(vm, "system")) and list(fast.iterdir()) == []


def test_meanwhile_the_vm_is_neither_started_nor_cloned_nor_purged(vm, fast, monkeypatch):
    refusals, copy = [], moving.clone.copy

    def meanwhile(*given):
        conn, settings = vm.conn, vm.settings
        for begin in (
            lambda: startlock.allow_start(conn, settings, "web1").__enter__(),
            lambda: clonesource.read_source(conn, settings, "web1", "db1"),
            lambda: purge.purge(conn, settings, "web1"),
            lambda: move(vm, "data"),
        ):
            with pytest.raises(NameTaken) as refusal:
                begin()
            refusals.append(str(refusal.value))
        assert str(fast / "web1_system.qcow2") in reservations.coming_files(settings, "")
        unfinished.settle(conn, settings)
        copy(*given)

    monkeypatch.setattr(moving.clone, "copy", meanwhile)
    assert move(vm)["trash"]
    assert len(refusals) == 4 and all("disk vda of VM 'web1'" in text for text in (refusals[0],))


def test_an_old_file_that_something_needs_by_now_stays_and_that_is_said(vm, fast, monkeypatch):
    old = path_of(vm, "system")

    def based(_self):
        overlay = old.with_name("late.qcow2")
        command = f"qemu-img create -q -f qcow2 -F qcow2 -b {old} {overlay}"
        assert os.system(command) == 0

    monkeypatch.setattr(moving._Mover, "check", based)
    answer = move(vm)
    assert old.exists() and answer["trash"] is None
    assert "; its old file stays: " in answer["outcome"] and "late.qcow2" in answer["outcome"]


@pytest.fixture
def memory_pool(vm):
    """A pool on another file system than the images."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if os.stat(folder).st_dev == os.stat(vm.root).st_dev:
            pytest.skip("the tests have one file system here")
        pool = vm.conn.storagePoolDefineXML(POOL.format("dir", folder))
        pool.create()
        yield Path(folder)
        pool.destroy()
        pool.undefine()


def test_the_room_of_another_file_system_is_reserved_while_it_is_copied(
    vm, memory_pool, monkeypatch
):
    copy, stocks = moving.clone.copy, []

    def look(*given):
        stocks.append(inspect.host_info(vm.conn, vm.settings).stocks["storage pool fast"])
        copy(*given)

    before = inspect.host_info(vm.conn, vm.settings).stocks["storage pool fast"]
    monkeypatch.setattr(moving.clone, "copy", look)

    assert move(vm, pool="fast")["file"] == str(memory_pool / "web1_system.qcow2")

    (meanwhile,) = stocks
    assert meanwhile.committed_mib - before.committed_mib == 8
    assert reservations.read_coming_vms(vm.settings) == {}


def test_a_pool_that_has_promised_its_room_is_refused(vm, memory_pool, monkeypatch):
    monkeypatch.setattr(moving.fit, "stocks_left", lambda _info: {"storage pool fast": 7})
    for call in (CALL, TEST):
        with pytest.raises(StorageError, match="8 MiB of storage pool fast wanted, 7 MiB free to"):
            move(vm, pool="fast", call=call)
    assert list(memory_pool.iterdir()) == [] and on_record(vm) == []
