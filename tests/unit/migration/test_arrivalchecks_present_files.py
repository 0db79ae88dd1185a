"""A host looks for a VM's files once; a file that is here is not overwritten."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records
from saltvirt.libvirt import reservations
from saltvirt.migration.host import arrival, arrivalchecks, arrivalplan
from saltvirt.placement.answers import ImageFacts
from saltvirt.storage import diskpaths
from saltvirt.storage.images import cache, source
from saltvirt.vm.show.host import migrationinfo

MIB = 2**20


@pytest.fixture
def image(end):
    """An image that the other host has, and its digest."""
    path = end.hypervisor.root / "image.qcow2"
    return path, source.file_digest(path)


@pytest.fixture
def moving(end, conn, image):
    """The migration info of web1 on its source; its disk is over the image."""
    (path,) = end.make(conn, count=1)
    info = migrationinfo.gather(conn, end.settings, "web1")["web1"]
    conn.lookupByName("web1").undefine()
    path.unlink()
    image_facts = ImageFacts(
        source="https://images.example.com/a", file_bytes=image[0].stat().st_size
    )
    copy_facts = {"how": "copy", "format": "qcow2", "virtual_bytes": 9 * MIB}
    disk = replace(info.disks[0], base=image[1], image=image_facts, **copy_facts)
    return replace(info, state="running", disks=[disk])


def test_an_image_that_comes_first_is_what_the_disk_is_made_over(end, conn, image, moving):
    path, digest = image
    request = arrival.prepare(end.context, moving, "t1", "hyper1")
    assert list(request["images"]) == [digest] and end.phase("arrival") == "preparing"
    shutil.copy(path, request["images"][digest])

    answer = arrival.resume(end.context, moving, "t1")

    assert (
        answer == {"images": {}, "present": [], "token": "t1"} and end.phase("arrival") == "ready"
    )
    (disk,) = moving.disks
    measured = diskpaths.measure(disk.path, "qcow2")
    assert (measured["backing"], measured["virtual"]) == (
        cache.find(end.settings, digest).path,
        9 * MIB,
    )
    facts = end.record("arrival").facts
    assert facts["paths"] == [disk.path] and facts["images"] == {}
    # It is not requested again.
    plan_facts = arrivalplan.gather(end.context, moving, frozenset(), "t2")
    assert plan_facts.incoming == {} and plan_facts.images[digest].path == measured["backing"]


def test_a_medium_that_appears_after_the_look_is_not_overwritten(end, conn, moving, monkeypatch):
    iso = Path(end.images, "tools.iso")
    (disk,) = moving.disks
    medium = replace(disk, path=str(iso), device="cdrom", how="push", base=None, size_bytes=4)

    def check(*_args):
        iso.write_bytes(b"somebody's")
        return []

    monkeypatch.setattr(arrivalchecks, "check", check)
    with pytest.raises(StorageError, match=r"a file .*tools.iso is there already"):
        arrival.prepare(end.context, replace(moving, disks=[medium]), "t1", "hyper1")

    assert iso.read_bytes() == b"somebody's" and end.record("arrival") is None


def test_a_medium_that_is_here_is_reported_as_present(end, conn, moving):
    iso = Path(end.images, "tools.iso")
    iso.write_bytes(b"tool")
    (disk,) = moving.disks
    medium = replace(disk, path=str(iso), device="cdrom", how="push", base=None, size_bytes=4)

    answer = arrival.prepare(end.context, replace(moving, disks=[medium]), "t1", "hyper1")

    assert answer["present"] == [str(iso)] and end.record("arrival").facts["paths"] == []


def test_a_medium_that_is_being_purged_is_not_here(end, conn, moving):
    iso = Path(end.images, "tools.iso")
    iso.write_bytes(b"tool")
    (disk,) = moving.disks
    medium = replace(disk, path=str(iso), device="cdrom", how="push", base=None, size_bytes=4)
    with records.hold_record(reservations.folder(end.settings), "purge", "db1") as purge:
        purge.begin("t1", "removing", uuid="u1", paths=[str(iso)])

        with pytest.raises(StorageError, match="tools.iso is a file of VM 'db1'.*virt.purge db1"):
            arrival.prepare(end.context, replace(moving, disks=[medium]), "t2", "hyper1")

    assert iso.exists() and end.record("arrival") is None


def test_a_medium_that_is_only_coming_with_another_vm_is_not_here(end, conn, moving):
    iso = Path(end.images, "tools.iso")
    (disk,) = moving.disks
    medium = replace(disk, path=str(iso), device="cdrom", how="push", base=None, size_bytes=4)
    other_vm = {"name": "db1", "uuid": "4dea22b3-1d52-d8f3-2516-782e98ab3fa1"}
    arrival.prepare(end.context, replace(moving, **other_vm, disks=[medium]), "t1", "hyper1")

    with pytest.raises(StorageError, match="is to be a file of VM 'db1', which .* on its way here"):
        arrival.prepare(end.context, replace(moving, disks=[medium]), "t2", "hyper1")

    assert iso.exists() and end.record("arrival") is None
