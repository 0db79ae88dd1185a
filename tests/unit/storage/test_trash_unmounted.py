"""What the trash keeps on a file system that is not mounted is not forgotten."""

import dataclasses
import errno
import os
import re
import shlex
from pathlib import Path

import pytest
import verdicts
from saltvirt.core.errors import StorageError
from saltvirt.core.journal import records
from saltvirt.core.journal.recordfacts import PurgeFacts
from saltvirt.storage import policies, trash, unreadablechains, usage
from saltvirt.storage.images import cachedimages
from test_unreadablechains import damaged, overlay, unread


def purged_as(definition):
    """Return the purge of a VM with this definition."""
    return PurgeFacts(uuid="u", paths=[], definition=definition)


@pytest.fixture
def entry(hypervisor):
    """The entry of a VM with a disk in the image folder, and one on a file system of its own."""
    hypervisor.settings = dataclasses.replace(hypervisor.settings, trash_days=7)
    mounted = hypervisor.root / "far off"
    for folder in (mounted, Path(hypervisor.settings.images)):
        folder.mkdir(exist_ok=True)
        (folder / "disk").write_text("x")
    with trash.fill_trash(hypervisor.settings, "web1", reason="a test") as drop:
        for folder in (mounted, Path(hypervisor.settings.images)):
            drop(verdicts.free(folder / "disk"))
    (found,) = trash.list_entries(hypervisor.settings)
    return found


@pytest.fixture
def mounted(hypervisor, entry):
    """The folder where a file system is mounted, and is away."""
    mounted = hypervisor.root / "far off"
    mounted.rename(hypervisor.root / "away")
    mounted.mkdir()
    return mounted


@pytest.mark.parametrize("act", [trash.restore, lambda *given: trash.empty(given[0], given[1:])])
def test_an_entry_is_not_brought_back_or_emptied_by_half(hypervisor, entry, mounted, act):
    with pytest.raises(StorageError, match="far off/disk of entry .* mount its file system; or"):
        act(hypervisor.settings, entry)

    assert not (Path(hypervisor.settings.images) / "disk").exists()
    mounted.rmdir()
    (hypervisor.root / "away").rename(mounted)
    assert len(trash.list_entries(hypervisor.settings)[entry]["files"]) == 2
    act(hypervisor.settings, entry)
    assert trash.list_entries(hypervisor.settings) == {}
    assert list(mounted.rglob("*")) == ([mounted / "disk"] if act is trash.restore else [])


def test_all_others_are_emptied_and_it_is_named(hypervisor, entry, mounted):
    other = Path(hypervisor.settings.images) / "other"
    other.write_text("x")
    with trash.fill_trash(hypervisor.settings, "web2", reason="a test") as drop:
        drop(verdicts.free(other))

    with pytest.raises(StorageError, match=f"far off/disk of entry '{entry}'"):
        trash.empty(hypervisor.settings)

    assert list(trash.list_entries(hypervisor.settings)) == [entry]


def test_what_is_gone_for_good_is_given_up_as_the_line_says(hypervisor, entry, mounted):
    with pytest.raises(StorageError) as caught:
        trash.restore(hypervisor.settings, entry)
    (folder,) = shlex.split(str(caught.value).rpartition("mkdir -p ")[2])
    Path(folder).mkdir(parents=True)

    said = trash.restore(hypervisor.settings, entry)

    assert said["files"] == [str(Path(hypervisor.settings.images) / "disk")]


def test_no_image_goes_that_it_may_need(hypervisor, entry, mounted):
    with (
        hypervisor.libvirt() as conn,
        pytest.raises(StorageError, match="may be based on it: .*mount its file"),
    ):
        cachedimages.prune(conn, hypervisor.settings, None, is_dry=True)


def judged(settings, path):
    """Return whether a VM may be given a file to write to."""
    return usage.index(None, settings).verdict(policies.BASE, str(path))


def fails(path):
    """Return a stand-in for os.stat of a file system that fails below a path."""
    usual = os.stat

    def stat(one, *args, **options):
        if not isinstance(one, int) and str(one).startswith(str(path)):
            raise OSError(errno.ESTALE, "Stale file handle", str(one))
        return usual(one, *args, **options)

    return stat


def test_a_file_system_that_fails_is_said_in_a_line_and_holds_up_no_other(
    hypervisor, entry, monkeypatch
):
    monkeypatch.setattr(os, "stat", fails(hypervisor.root / "far off"))
    monkeypatch.setattr(os, "lstat", fails(hypervisor.root / "far off"))

    assert trash.list_entries(hypervisor.settings)[entry]["bytes"] >= 0
    assert unreadablechains.backing_files(hypervisor.settings) == {}
    for act in (trash.restore, lambda *given: trash.empty(given[0], given[1:])):
        with pytest.raises(StorageError, match="mount its file system"):
            act(hypervisor.settings, entry)


def test_who_dies_as_an_entry_is_forgotten_leaves_none_that_is_away(hypervisor, entry, monkeypatch):
    def dies(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(records.LockedRecord, "end", dies)
    with pytest.raises(KeyboardInterrupt):
        trash.empty(hypervisor.settings)
    monkeypatch.undo()

    assert unreadablechains.find_unreadable_entries(hypervisor.settings) == {}
    assert list(trash.empty(hypervisor.settings)) == [entry]


@pytest.fixture
def based(hypervisor, tmp_path):
    """The entry of a disk that is based on one on a file system of its own, and the last base."""
    hypervisor.settings = dataclasses.replace(hypervisor.settings, trash_days=7)
    base = overlay(tmp_path / "images/base.qcow2")
    middle = overlay(tmp_path / "far/middle.qcow2", base)
    with trash.fill_trash(hypervisor.settings, "web1", reason="a test") as drop:
        drop(verdicts.free(overlay(tmp_path / "disks/top.qcow2", middle)))
    return middle, base


@pytest.mark.parametrize("spoil", [Path.unlink, unread, damaged])
def test_nothing_goes_that_what_it_is_based_on_may_need(hypervisor, based, spoil):
    middle, base = based
    assert unreadablechains.find_unreadable_entries(hypervisor.settings) == {}
    spoil(middle)

    why = "entry 'web1-.*' of the trash may be based on it: .*middle.qcow2 .*; or if it is"
    assert re.match(why, judged(hypervisor.settings, base).reason)

    trash.empty(hypervisor.settings)
    assert judged(hypervisor.settings, base).is_free


def test_what_is_based_on_another_file_of_the_trash_is_known(hypervisor, based):
    with trash.fill_trash(hypervisor.settings, "web2", reason="a test") as drop:
        drop(verdicts.free(based[0]))

    assert unreadablechains.find_unreadable_entries(hypervisor.settings) == {}
    why = "a disk in the trash .entry web.-.* is based on it"
    assert re.match(why, judged(hypervisor.settings, based[1]).reason)


@pytest.mark.parametrize("name", ["data.raw", "data"])
def test_what_a_guest_wrote_into_its_raw_disk_holds_nothing_up(hypervisor, based, tmp_path, name):
    disk = based[0].rename(tmp_path / name)
    says = f"<driver type='raw'/><source file='{disk}'/><target dev='vda'/>"
    text = f"<domain><devices><disk type='file' device='disk'>{says}</disk></devices></domain>"
    trash.empty(hypervisor.settings)
    based[1].unlink()
    with trash.fill_trash(
        hypervisor.settings, "web2", reason="a test", purged=purged_as(text)
    ) as drop:
        drop(verdicts.free(disk))

    assert unreadablechains.find_unreadable_entries(hypervisor.settings) == {}


def test_what_is_to_be_typed_of_an_entry_is_quoted(hypervisor):
    settings = dataclasses.replace(hypervisor.settings, trash_days=7)
    disk = overlay(Path(settings.images) / "data", overlay(hypervisor.root / "gone"))
    (hypervisor.root / "gone").unlink()
    with trash.fill_trash(settings, "my vm", reason="a test") as drop:
        drop(verdicts.free(disk))

    ((entry, why),) = unreadablechains.find_unreadable_entries(settings).items()

    assert shlex.split(why)[-2:] == ["virt.trash_empty", entry]


def test_an_entry_whose_definition_cannot_be_read_holds_nothing_up(hypervisor):
    settings = dataclasses.replace(hypervisor.settings, trash_days=7)
    disk = overlay(Path(settings.images) / "data")
    with trash.fill_trash(settings, "web1", reason="a test", purged=purged_as("<domain")) as drop:
        drop(verdicts.free(disk))

    assert unreadablechains.find_unreadable_entries(settings) == {}


def test_a_raw_volume_may_have_in_it_whatever_its_guest_has_written(hypervisor):
    settings = dataclasses.replace(hypervisor.settings, trash_days=7)
    disk = overlay(Path(settings.images) / "data", overlay(hypervisor.root / "gone"))
    (hypervisor.root / "gone").unlink()
    text = """<domain><devices><disk type='volume' device='disk'><driver type='{}'/>
<source pool='p1' volume='data'/><target dev='vda'/></disk></devices></domain>"""
    for fmt, is_known in (("raw", True), ("qcow2", False)):
        with trash.fill_trash(
            settings, "web1", reason="a test", purged=purged_as(text.format(fmt))
        ) as drop:
            drop(verdicts.free(disk))

        (entry,) = trash.list_entries(settings)
        assert (unreadablechains.find_unreadable_entries(settings) == {}) is is_known

        trash.restore(settings, entry)
