"""A build that fails takes itself back; one whose builder is killed is settled by the next."""

import errno
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from saltvirt.core import files
from saltvirt.core.errors import LibvirtRefused, NameTaken, NotTakenBack, SeedError, StorageError
from saltvirt.core.journal import records
from saltvirt.libvirt import reservations
from saltvirt.libvirt.domains import lifecycle
from saltvirt.seeding import nocloud
from saltvirt.storage import exclusivecreate, trash
from saltvirt.storage.images import clone
from saltvirt.vm.create.host import apply
from saltvirt.vm.purge.host import purge
from saltvirt.vm.recovery.host import unfinished
from saltvirt.vm.show.host import inspect

pytestmark = pytest.mark.slow

ALL = ["web1_data.qcow2", "web1_seed.iso.qcow2", "web1_system.qcow2"]


def kill(*_args, **_given):
    """Die as a process does that is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_vm_is_built_and_nothing_of_it_stays_on_record(hypervisor):
    with hypervisor.libvirt() as conn:
        assert hypervisor.init() is True

        assert lifecycle.name_of(conn, lifecycle.uuid(conn, "web1")) == "web1"
        assert conn.lookupByName("web1").isActive()
    assert (hypervisor.files(), hypervisor.domains()) == (ALL, ["web1"])
    assert hypervisor.open_records() == []


def test_all_files_are_on_the_disk_before_it_is_on_record_that_the_vm_is_defined(
    hypervisor, synced
):
    with hypervisor.libvirt():
        hypervisor.init(start=False)

    records_of = [n for n, (name, held) in enumerate(synced) if "web1.json" in name and held]
    at = next(n for n in records_of if b'"defining"' in synced[n][1])
    before, folder = synced[:at], Path(hypervisor.settings.images)
    for name in ALL:
        assert [held for one, held in before if one == name][-1:] == [(folder / name).read_bytes()]
    last = max(n for n, (name, _held) in enumerate(before) if name in ALL)
    assert {*ALL} <= {*dict(before[last:])[folder.name]}


def test_files_without_a_second_name_go_with_a_build_that_cannot_note_them(hypervisor, monkeypatch):
    def refuses(*_args, **_given):
        raise OSError(errno.EPERM, "no links here")

    def full(_held, **_facts):
        assert {*ALL} <= {*hypervisor.files()}
        raise StorageError("the disk is full")

    monkeypatch.setattr(os, "link", refuses)
    announce = exclusivecreate.announce

    def announced(*args):
        announce(*args)
        monkeypatch.setattr(records.LockedRecord, "note", full)

    monkeypatch.setattr(exclusivecreate, "announce", announced)
    with hypervisor.libvirt(), pytest.raises(StorageError, match="the disk is full"):
        hypervisor.init()

    assert hypervisor.files() == []


def test_a_disk_that_would_be_the_seed_is_refused(hypervisor):
    with hypervisor.libvirt(), pytest.raises(StorageError, match="two files of VM 'web1' would be"):
        hypervisor.init(disks=[{"name": "seed.iso", "size": 8}], start=False)

    assert (hypervisor.files(), hypervisor.open_records()) == ([], [])


def test_a_folder_that_cannot_be_synced_is_named(hypervisor, monkeypatch):
    sync, failed = files.sync_folder, []

    def broken(folder):
        if Path(folder) == Path(hypervisor.settings.images) and not failed:
            failed.append(folder)
            raise OSError(errno.EIO, "Input/output error")
        sync(folder)

    monkeypatch.setattr(files, "sync_folder", broken)
    with hypervisor.libvirt(), pytest.raises(StorageError, match="images: Input/output error"):
        hypervisor.init()

    assert (hypervisor.files(), hypervisor.open_records()) == ([], [])


POINTS = {
    "build.before-making": [],
    "build.making": [],
    "build.before-defining": [],
    "build.defining": [],
    "build.before-complete": ["web1"],
    "build.complete": ["web1"],
    "build.end": ["web1"],
}


@pytest.mark.parametrize(("point", "domains"), POINTS.items(), ids=POINTS)
def test_what_a_killed_builder_leaves_is_settled(hypervisor, point, domains):
    hypervisor.dies(hypervisor.init, point)

    with hypervisor.libvirt() as conn:
        unfinished.settle(conn, hypervisor.settings)
        # A second time changes nothing.
        unfinished.settle(conn, hypervisor.settings)

        kept = reservations.folder(hypervisor.settings).rglob("*.*")
        assert [one for one in kept if one.parent.name != trash.PURPOSE] == []
        assert hypervisor.domains() == domains
        assert hypervisor.files() == (ALL if domains else [])
        if domains:
            with pytest.raises(NameTaken, match=r"exists on this host \(shutdown\)"):
                hypervisor.init()
        else:
            assert hypervisor.init() is True
        assert hypervisor.files() == ALL


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize(
    ("part", "name"),
    [(clone, "empty"), (nocloud, "build"), (files, "sync_files"), (apply, "_define")],
)
def test_a_builder_that_is_killed_between_two_phases_leaves_no_file(
    hypervisor, monkeypatch, part, name, is_shared
):
    shared_paths = [str(hypervisor.settings.images)] if is_shared else []
    hypervisor.settings = replace(hypervisor.settings, shared_paths=shared_paths)
    with monkeypatch.context() as dying:
        dying.setattr(part, name, kill)
        hypervisor.dies(hypervisor.init)
    assert hypervisor.files() != []

    with hypervisor.libvirt() as conn:
        info = inspect.host_info(conn, hypervisor.settings)
        assert (info.unfinished, info.building) == (["web1"], [])
        purge.purge(conn, hypervisor.settings, "web1")

    assert (hypervisor.files(), hypervisor.domains(), hypervisor.open_records()) == ([], [], [])


def test_a_vm_that_ran_and_was_shut_down_is_not_deleted_by_anothers_init(hypervisor):
    # L4: killed between the start and the end of its record; or a crash brought the record back.
    hypervisor.dies(hypervisor.init, "build.complete")

    with hypervisor.libvirt():
        assert hypervisor.init("web2", seed=False, pub_key=None, priv_key=None) is True

    assert hypervisor.domains() == ["web1", "web2"]
    assert set(ALL) < set(hypervisor.files())


def test_a_complete_vm_that_has_left_keeps_what_lies_in_its_place(hypervisor):
    hypervisor.dies(hypervisor.init, "build.complete")
    # It was moved away meanwhile, and its disks are on storage that its new host uses.
    (hypervisor.definitions / "web1.xml").unlink()

    with hypervisor.libvirt() as conn:
        unfinished.settle(conn, hypervisor.settings)

    assert hypervisor.files() == ALL
    assert hypervisor.open_records() == []


def test_a_file_that_another_vm_uses_by_now_stays(hypervisor):
    hypervisor.dies(hypervisor.init, "build.defining")
    images = hypervisor.settings.images
    (hypervisor.definitions / "other.xml").write_text(
        f"""<domain type='test'><name>other</name><memory>1024</memory><os><type>hvm</type></os>
        <devices><disk type='file' device='disk'><source file='{images}/web1_data.qcow2'/>
        <target dev='vda'/></disk></devices></domain>"""
    )

    with hypervisor.libvirt() as conn:
        unfinished.settle(conn, hypervisor.settings)

    assert hypervisor.files() == ["web1_data.qcow2"]


def fail(*_args, **_given):
    """Fail as a step does."""
    raise SeedError("this step failed")


@pytest.mark.parametrize(
    ("part", "name"),
    [(clone, "empty"), (nocloud, "build"), (lifecycle, "define"), (lifecycle, "start")],
)
def test_a_build_that_fails_leaves_nothing(hypervisor, monkeypatch, part, name):
    monkeypatch.setattr(part, name, fail)
    before = reservations.last_end(hypervisor.settings)

    with hypervisor.libvirt() as conn:
        with pytest.raises(SeedError, match="this step failed"):
            hypervisor.init()
        assert conn.listAllDomains() == []

    assert (hypervisor.files(), hypervisor.domains(), hypervisor.open_records()) == ([], [], [])
    assert reservations.last_end(hypervisor.settings) != before


def test_what_cannot_be_undone_stays_on_record_and_the_disks_of_a_vm_stay_with_it(
    hypervisor, monkeypatch
):
    monkeypatch.setattr(lifecycle, "start", fail)
    monkeypatch.setattr(lifecycle, "undefine", fail)

    with hypervisor.libvirt() as conn:
        with pytest.raises(NotTakenBack, match="step failed; and not everything .* can be removed"):
            hypervisor.init()

        assert hypervisor.open_records() == [("build", "web1", "undoing")]
        assert (hypervisor.files(), hypervisor.domains()) == (ALL, ["web1"])
        unfinished.settle(conn, hypervisor.settings)
    assert (hypervisor.files(), hypervisor.domains()) == (ALL, ["web1"])
    assert hypervisor.open_records() == []


def test_a_builder_that_is_killed_while_it_undoes_a_complete_vm_leaves_no_file(
    hypervisor, monkeypatch
):
    monkeypatch.setattr(lifecycle, "start", fail)
    with monkeypatch.context() as dying:
        dying.setattr(unfinished, "remove", kill)
        hypervisor.dies(hypervisor.init)
    assert set(ALL) <= set(hypervisor.files()) and hypervisor.domains() == []

    with hypervisor.libvirt() as conn:
        unfinished.settle(conn, hypervisor.settings)

    assert (hypervisor.files(), hypervisor.open_records()) == ([], [])


@pytest.mark.parametrize("when", ["before-", ""])
def test_a_builder_that_is_killed_as_it_begins_to_undo_leaves_the_vm_whole(
    hypervisor, monkeypatch, when
):
    monkeypatch.setattr(lifecycle, "start", fail)
    hypervisor.dies(hypervisor.init, f"build.{when}undoing")

    with hypervisor.libvirt() as conn:
        unfinished.settle(conn, hypervisor.settings)

    assert (hypervisor.files(), hypervisor.domains()) == (ALL, ["web1"])
    assert hypervisor.open_records() == []


def test_the_files_and_the_phase_are_on_the_disk_before_the_vm_is_defined(hypervisor, monkeypatch):
    order, settings = [], hypervisor.settings
    settle, define, start = files.sync_files, lifecycle.define, lifecycle.start

    def phase():
        return records.read_record(reservations.folder(settings), "build", "web1").phase

    def watched(name, function):
        def call(*args):
            order.append((name, phase()))
            return function(*args)

        return call

    monkeypatch.setattr(files, "sync_files", watched("settle", settle))
    monkeypatch.setattr(lifecycle, "define", watched("define", define))
    monkeypatch.setattr(lifecycle, "start", watched("start", start))
    with hypervisor.libvirt():
        hypervisor.init()

    assert order == [("settle", "making"), ("define", "defining"), ("start", "complete")]


def test_credentials_that_a_killed_builder_wrote_do_not_stay(hypervisor, monkeypatch):
    monkeypatch.setattr(lifecycle, "start_once", kill)
    monkeypatch.setattr(
        "saltvirt.seeding.offline.appliance.why_missing", lambda _python: "no such thing"
    )
    hypervisor.dies(lambda: hypervisor.init(seed_method="credentials"))
    assert "web1_seed.credentials" in hypervisor.files()

    with hypervisor.libvirt() as conn:
        unfinished.settle(conn, hypervisor.settings)

    assert hypervisor.files() == ["web1_data.qcow2", "web1_system.qcow2"]
    assert hypervisor.domains() == ["web1"]


def test_a_vm_that_somebody_else_defined_meanwhile_is_not_undone(hypervisor, monkeypatch):
    settle = files.sync_files

    def settle_and_see_another(paths):
        settle(paths)
        lifecycle.define(
            conn,
            "<domain type='test'><name>web1</name><memory>1024</memory><os><type>hvm</type></os>"
            "</domain>",
        )

    monkeypatch.setattr(files, "sync_files", settle_and_see_another)
    with hypervisor.libvirt() as conn:
        with pytest.raises(LibvirtRefused, match="already exists|already defined"):
            hypervisor.init()
        assert conn.lookupByName("web1")

    assert (hypervisor.files(), hypervisor.domains(), hypervisor.open_records()) == (
        [],
        ["web1"],
        [],
    )


def test_leftovers_of_a_killed_build_do_not_lessen_what_the_next_one_reserves(
    hypervisor, monkeypatch
):
    reserved, reserve = [], reservations.reserve

    def spy(settings, requirements, *args, **given):
        reserved.append(requirements.disk_mib)
        return reserve(settings, requirements, *args, **given)

    monkeypatch.setattr(reservations, "reserve", spy)
    data = [{"name": "data", "size": 64, "format": "raw"}]
    with hypervisor.libvirt():
        hypervisor.init("web2", disks=data, start=False)
    hypervisor.dies(lambda: hypervisor.init(disks=data, start=False), "build.defining")
    with hypervisor.libvirt():
        hypervisor.init(disks=data, start=False)

    clean, after_the_kill = reserved
    assert clean == after_the_kill >= 64
