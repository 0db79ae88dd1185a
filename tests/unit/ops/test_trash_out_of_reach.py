"""What the trash keeps on a file system that is not mounted is not forgotten."""

import dataclasses
import errno
import os
import shlex
from pathlib import Path

import pytest
from saltvirt import records
from saltvirt.errors import StorageError
from saltvirt.ops import trash, trashbases
from saltvirt.ops.images import cached


@pytest.fixture
def entry(hypervisor):
    """The entry of a VM with a disk in the image folder, and one on a file system of its own."""
    hypervisor.settings = dataclasses.replace(hypervisor.settings, trash_days=7)
    mounted = hypervisor.root / "far off"
    for folder in (mounted, Path(hypervisor.settings.images)):
        folder.mkdir(exist_ok=True)
        (folder / "disk").write_text("x")
    with trash.filling(hypervisor.settings, "web1", why="a test") as drop:
        for folder in (mounted, Path(hypervisor.settings.images)):
            drop(str(folder / "disk"))
    (found,) = trash.listed(hypervisor.settings)
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
    assert len(trash.listed(hypervisor.settings)[entry]["files"]) == 2
    act(hypervisor.settings, entry)
    assert trash.listed(hypervisor.settings) == {}
    assert list(mounted.rglob("*")) == ([mounted / "disk"] if act is trash.restore else [])


def test_all_others_are_emptied_and_it_is_named(hypervisor, entry, mounted):
    other = Path(hypervisor.settings.images) / "other"
    other.write_text("x")
    with trash.filling(hypervisor.settings, "web2", why="a test") as drop:
        drop(str(other))

    with pytest.raises(StorageError, match=f"far off/disk of entry '{entry}'"):
        trash.empty(hypervisor.settings)

    assert list(trash.listed(hypervisor.settings)) == [entry]


def test_what_is_gone_for_good_is_given_up_as_the_line_says(hypervisor, entry, mounted):
    with pytest.raises(StorageError) as caught:
        trash.restore(hypervisor.settings, entry)
    (folder,) = shlex.split(str(caught.value).rpartition("mkdir -p ")[2])
    Path(folder).mkdir(parents=True)

    said = trash.restore(hypervisor.settings, entry)

    assert said["files"] == [str(Path(hypervisor.settings.images) / "disk")]


def test_no_image_goes_that_it_may_need(hypervisor, entry, mounted):
    with hypervisor.libvirt() as conn, pytest.raises(StorageError, match="needs: .*mount its file"):
        cached.prune(conn, hypervisor.settings, None, is_dry=True)


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

    assert trash.listed(hypervisor.settings)[entry]["bytes"] >= 0
    assert trashbases.below(hypervisor.settings) == {}
    for act in (trash.restore, lambda *given: trash.empty(given[0], given[1:])):
        with pytest.raises(StorageError, match="mount its file system"):
            act(hypervisor.settings, entry)


def test_who_dies_as_an_entry_is_forgotten_leaves_none_that_is_away(hypervisor, entry, monkeypatch):
    def dies(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(records.Held, "end", dies)
    with pytest.raises(KeyboardInterrupt):
        trash.empty(hypervisor.settings)
    monkeypatch.undo()

    assert trash.unknown(hypervisor.settings) == {}
    assert list(trash.empty(hypervisor.settings)) == [entry]
