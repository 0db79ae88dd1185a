"""The trash keeps the files of purged VMs; no crash loses one, and nothing in it is given away."""

import dataclasses
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import verdicts
from saltvirt.core.errors import BadArgument, StorageError
from saltvirt.core.journal import records
from saltvirt.core.journal.recordfacts import PurgeFacts
from saltvirt.core.options import config
from saltvirt.libvirt import reservations
from saltvirt.storage import definitionfiles, diskpaths, door, ownermark, trash
from saltvirt.storage.images import cachedimages
from saltvirt.vm.purge.host import purge
from saltvirt.vm.recovery.host import unfinished
from saltvirt.vm.show.host import inspect
from test_purge_host import after_the_first, kill
from trashkit import DISKS, entry, names, older

__all__ = ["DISKS", "entry", "names", "older"]


def purged(host, name="web1"):
    """Purge a VM."""
    with host.libvirt() as conn:
        purge.purge(conn, host.settings, name)


def test_a_purge_keeps_the_disks_and_not_the_seed(keeping):
    sizes = {name: (Path(keeping.settings.images) / name).stat().st_ino for name in DISKS}

    purged(keeping)

    assert (keeping.files(), keeping.domains(), keeping.open_records()) == ([], [], [])
    assert names(keeping) == DISKS
    (row,) = trash.list_entries(keeping.settings).values()
    assert (row["vm"], row["why"]) == ("web1", "virt.purge")
    assert row["bytes"] > 0
    assert "<name>web1</name>" in row["definition"]
    kept = {one.name: one.stat().st_ino for one in Path(keeping.settings.images).rglob("web1_*")}
    assert kept == sizes


def test_without_days_a_purge_removes_for_good(hypervisor):
    with hypervisor.libvirt():
        hypervisor.init()

    purged(hypervisor)

    assert trash.list_entries(hypervisor.settings) == {}
    assert list(Path(hypervisor.settings.images).rglob("web1_*")) == []


def test_the_trash_is_emptied_by_name_and_not_by_a_wrong_one(keeping):
    purged(keeping)
    with pytest.raises(BadArgument, match="there is no 'web2'"):
        trash.empty(keeping.settings, ["web2"])
    with pytest.raises(BadArgument, match="there is no '../x'"):
        trash.restore(keeping.settings, "../x")
    assert names(keeping) == DISKS

    freed = trash.empty(keeping.settings, [entry(keeping)])

    assert sum(freed.values()) > 0
    assert list(Path(keeping.settings.images).rglob("web1_*")) == []
    assert records.read_records(reservations.folder(keeping.settings), trash.PURPOSE) == []


def test_the_next_command_removes_what_is_old_and_leaves_what_is_not(keeping):
    purged(keeping)
    older(keeping, 6)
    with keeping.libvirt() as conn:
        unfinished.settle(conn, keeping.settings)
        assert names(keeping) == DISKS

        older(keeping, 2)
        unfinished.settle(conn, keeping.settings)
        assert names(keeping) == DISKS, "that is seen for the first time"

        older(keeping, 1)
        unfinished.settle(conn, keeping.settings)

    assert list(Path(keeping.settings.images).rglob("web1_*")) == []
    assert list((reservations.folder(keeping.settings) / trash.PURPOSE).iterdir()) == []


@pytest.mark.parametrize("days", [[-400, 0], [0, 400, 1, 401]])
def test_a_clock_that_was_wrong_does_not_empty_the_trash(keeping, monkeypatch, days):
    now, (first, *later) = time.time(), days
    monkeypatch.setattr(time, "time", lambda: now + first * 86400)
    purged(keeping)

    for day in later:
        monkeypatch.setattr(time, "time", lambda day=day: now + day * 86400)
        trash.sweep(keeping.settings)

    assert names(keeping) == DISKS


def test_placement_learns_what_the_trash_takes(keeping):
    with keeping.libvirt() as conn:
        assert inspect.host_info(conn, keeping.settings).storage.trash_mib is None
        path = Path(keeping.settings.images) / DISKS[0]
        with path.open("ab") as disk:
            disk.write(b"x" * (3 << 20))
        purge.purge(conn, keeping.settings, "web1")

        assert inspect.host_info(conn, keeping.settings).storage.trash_mib >= 3


def test_turning_the_trash_off_takes_nothing_from_it_before_its_time(keeping):
    purged(keeping)
    keeping.settings = dataclasses.replace(keeping.settings, trash_days=0)

    with keeping.libvirt() as conn:
        unfinished.settle(conn, keeping.settings)

    assert names(keeping) == DISKS


def found(keeping):
    """Return the names of the VM's disks, wherever they are by now."""
    files = Path(keeping.settings.images).rglob("web1_*.qcow2")
    return sorted(one.name for one in files if "_seed." not in one.name)


@pytest.mark.parametrize("point", ["purge.removing", "trash.before-kept", "trash.kept"])
def test_a_purge_that_was_killed_at_a_boundary_loses_no_disk(keeping, point):
    keeping.dies(lambda: purged(keeping), point)
    assert found(keeping) == DISKS

    with keeping.libvirt() as conn:
        unfinished.settle(conn, keeping.settings)
    if keeping.domains():
        purged(keeping)

    assert keeping.files() == []
    assert sorted(names(keeping)) == DISKS


@pytest.mark.parametrize("is_first", [True, False])
def test_a_purge_that_was_killed_among_the_files_loses_no_disk(keeping, monkeypatch, is_first):
    dying = kill if is_first else after_the_first(door.put_away)
    with monkeypatch.context() as patched:
        # This is not a boundary of a record: only the call itself can be stopped at.
        patched.setattr(door, "put_away", dying)
        keeping.dies(lambda: purged(keeping))
    assert found(keeping) == DISKS

    with keeping.libvirt() as conn:
        unfinished.settle(conn, keeping.settings)

    assert keeping.files() == []
    assert sorted(names(keeping)) == DISKS


def test_what_a_disk_in_the_trash_is_based_on_stays(keeping):
    base = Path(diskpaths.measure(f"{keeping.settings.images}/{DISKS[1]}", "qcow2")["backing"])
    purged(keeping)

    with keeping.libvirt() as conn:
        used = cachedimages.find_users(conn, keeping.settings)
        said = cachedimages.prune(conn, keeping.settings, None, is_dry=False)

    assert [one for there in used.values() for one in there] == [f"{entry(keeping)} in the trash"]
    assert said["removed"] == {}
    assert base.exists()
    trash.restore(keeping.settings, entry(keeping))
    restored = f"{keeping.settings.images}/{DISKS[1]}"
    subprocess.run(["qemu-img", "check", "-q", restored], check=True)


def test_a_disk_that_one_in_the_trash_is_based_on_is_not_purged(keeping):
    images = Path(keeping.settings.images)
    upper, lower = images / DISKS[0], images / DISKS[1]
    # A relative name, which leads nowhere from inside the trash.
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", lower.name, upper]
    upper.unlink()
    subprocess.run(argv, check=True)
    with trash.fill_trash(keeping.settings, "web2", reason="a test") as drop:
        drop(verdicts.free(upper))

    purged(keeping)

    assert keeping.files() == [lower.name]


def test_a_seed_and_a_link_are_removed_for_good(keeping):
    images = Path(keeping.settings.images)
    seeds = {"x_seed.credentials", "x_seed.iso.qcow2"}
    for name in seeds:
        shutil.copy(images / DISKS[0], images / name)
    (images / "link").symlink_to(images / DISKS[0])

    with trash.fill_trash(keeping.settings, "x", reason="a test") as drop:
        for name in (*seeds, "link", "missing"):
            drop(verdicts.free(images / name))

    assert trash.list_entries(keeping.settings) == {}
    assert {*seeds, "link"}.isdisjoint(keeping.files())


def test_volumes_that_are_not_files_stay_and_are_named(keeping):
    with trash.fill_trash(keeping.settings, "web1", reason="a test") as drop:
        assert drop.stays([["vg0", "web1_data", "7"]])

    (row,) = trash.list_entries(keeping.settings).values()

    assert (row["files"], row["volumes"], row["bytes"]) == ([], ["vg0/web1_data"], 0)


def test_the_trash_takes_its_room_of_what_the_host_has(keeping):
    keeping.settings = dataclasses.replace(keeping.settings, capacity={"disk_mib": 1000})
    big = Path(keeping.settings.images) / "big.raw"
    big.write_bytes(bytes([7]) * (8 << 20))
    with keeping.libvirt() as conn:
        before = inspect.host_info(conn, keeping.settings).storage.committed_mib

        with trash.fill_trash(keeping.settings, "big", reason="a test") as drop:
            drop(verdicts.free(big))

        assert inspect.host_info(conn, keeping.settings).storage.committed_mib == before + 8


def test_a_vm_that_is_only_undefined_leaves_disks_that_nobody_takes_for_garbage(keeping):
    disk = Path(keeping.settings.images) / DISKS[1]
    assert ownermark.read_owner(disk).vm == "web1"

    with keeping.libvirt() as conn:
        purge.undefine(conn, keeping.settings, "web1")

    assert ownermark.read_owner(disk) is None


def test_a_copy_and_a_renamed_file_are_not_ours(keeping):
    disk = Path(keeping.settings.images) / DISKS[0]
    assert ownermark.read_owner(disk).vm == "web1"
    copy = disk.with_name("web1_copy.qcow2")

    subprocess.run(["cp", "--preserve=all", disk, copy], check=True)
    disk.rename(disk.with_name("mine.qcow2"))
    subprocess.run(["cp", "--preserve=all", copy, disk], check=True)

    found = [
        ownermark.read_owner(one) for one in (copy, disk, disk.with_name("mine.qcow2"), "/nowhere")
    ]
    assert found == [None, None, None, None]


def test_what_is_based_on_by_a_disk_that_is_left_is_not_ours_either(keeping):
    images = Path(keeping.settings.images)
    below, above = images / DISKS[0], keeping.root / "elsewhere/above.qcow2"
    above.parent.mkdir()
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", below, above]
    subprocess.run(argv, check=True)
    text = (keeping.definitions / "web1.xml").read_text()
    (keeping.definitions / "web1.xml").write_text(text.replace(str(below), str(above)))

    with keeping.libvirt() as conn:
        purge.undefine(conn, keeping.settings, "web1")

    assert ownermark.read_owner(below) is None


def test_an_entry_whose_file_system_is_away_is_not_forgotten(keeping):
    purged(keeping)
    images, away = Path(keeping.settings.images), keeping.root / "away"
    images.rename(away)
    images.mkdir()

    with keeping.libvirt() as conn:
        unfinished.settle(conn, keeping.settings)
    (row,) = trash.list_entries(keeping.settings).values()
    assert row["files"] == [] and row["bytes"] == 0 and len(row["away"]) == len(DISKS)
    assert "is not there: mount its file system" in row["away"][0]
    images.rmdir()
    away.rename(images)

    assert names(keeping) == DISKS


def test_what_moves_into_the_trash_while_another_command_sweeps_it_stays(keeping, monkeypatch):
    held, path = records.hold_record, Path(keeping.settings.images) / DISKS[0]
    with trash.fill_trash(keeping.settings, "web1", reason="a test") as drop:
        drop(verdicts.free(path))
    place = next(Path(keeping.settings.images).rglob(f"*/{DISKS[0]}"))
    place.rename(path)

    def late(*given, **more):
        # Between the look at an entry and its lock: there is no other way to stop a sweep there.
        if path.exists():
            path.rename(place)
        return held(*given, **more)

    monkeypatch.setattr(records, "hold_record", late)
    trash.sweep(keeping.settings)

    assert place.exists() or path.exists()


def test_a_restore_that_dies_leaves_no_disk_that_is_taken_for_garbage(keeping, monkeypatch):
    purged(keeping)
    (name,) = trash.list_entries(keeping.settings)
    with monkeypatch.context() as patched:
        # The fault is between two system calls.
        patched.setattr(door.files, "unlink", kill)
        keeping.dies(lambda: trash.restore(keeping.settings, name))

    there = [Path(keeping.settings.images) / one for one in keeping.files()]
    assert there and [ownermark.read_owner(one) for one in there] == [None]

    trash.restore(keeping.settings, name)
    assert keeping.files() == DISKS


@pytest.mark.parametrize("what", ["a definition", "an entry"])
def test_no_image_is_pruned_while_nobody_knows_what_needs_it(keeping, monkeypatch, what):
    purged(keeping)
    trash.empty(keeping.settings)
    place = keeping.root / "not-loaded/old1.xml"
    if what == "an entry":
        place = reservations.folder(keeping.settings) / trash.PURPOSE / "old1-1.json"
    place.parent.mkdir(exist_ok=True)
    place.write_text("{")
    # The test driver has no files of its own; QEMU's skips one that it cannot read.
    monkeypatch.setattr(definitionfiles, "_DEFINITIONS", keeping.root / "not-loaded")

    with keeping.libvirt() as conn:
        with pytest.raises(StorageError, match="old1"):
            cachedimages.prune(conn, keeping.settings, None, is_dry=False)
        place.unlink()
        assert len(cachedimages.prune(conn, keeping.settings, None, is_dry=False)["removed"]) == 1


def other_host(host):
    """Return the settings of a host that has the same folder, and no record of this one's."""
    return dataclasses.replace(host.settings, state_dir=str(host.root / "other-state"))


def test_no_image_is_pruned_that_the_trash_of_another_host_needs(keeping):
    base = Path(diskpaths.measure(f"{keeping.settings.images}/{DISKS[1]}", "qcow2")["backing"])
    purged(keeping)

    with keeping.libvirt() as conn:
        said = cachedimages.prune(conn, other_host(keeping), None, is_dry=False)

    assert said["removed"] == {}
    assert base.exists()


def test_no_disk_is_purged_that_one_in_the_trash_of_another_host_is_based_on(keeping):
    images = Path(keeping.settings.images)
    upper, lower = images / DISKS[0], images / DISKS[1]
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", lower, upper]
    upper.unlink()
    subprocess.run(argv, check=True)
    with trash.fill_trash(keeping.settings, "web2", reason="a test") as drop:
        drop(verdicts.free(upper))
    keeping.settings = other_host(keeping)

    purged(keeping)

    assert keeping.files() == [lower.name]


@pytest.mark.parametrize(
    ("options", "days", "is_set"),
    [
        ({}, 7, False),
        ({"compat": "3006"}, 0, False),
        ({"compat": "3006", "trash_days": 3}, 3, True),
        ({"trash_days": 0}, 0, True),
        ({"trash_days": 7}, 7, True),
    ],
)
def test_the_trash_is_on_by_default_and_was_not_in_3006(options, days, is_set):
    settings = config.host_settings({"virt": options})

    assert (settings.trash_days, settings.is_trash_set) == (days, is_set)


@pytest.mark.parametrize("is_set", [True, False])
def test_volumes_that_are_no_files_stay_only_if_the_option_is_set(hypervisor, is_set):
    settings = dataclasses.replace(hypervisor.settings, trash_days=7, is_trash_set=is_set)
    purged_vm = PurgeFacts(uuid="u", paths=[], definition="<domain/>", autostart=False)

    with trash.fill_trash(settings, "web1", reason="a test", purged=purged_vm) as drop:
        assert drop.stays([["lvm", "web1", "9"]]) is is_set
        assert drop.can_undo is is_set

    (row,) = trash.list_entries(settings).values()
    assert (row["volumes"], row["is_purged"]) == (["lvm/web1"] if is_set else [], is_set)
