"""What the trash keeps on a file system that is not mounted is not forgotten."""

import dataclasses
from pathlib import Path

import pytest
from saltvirt.errors import StorageError
from saltvirt.ops import trash


@pytest.fixture
def entry(hypervisor):
    """The entry of a VM with a disk in the image folder, and one on a file system of its own."""
    hypervisor.settings = dataclasses.replace(hypervisor.settings, trash_days=7)
    mounted = hypervisor.root / "mounted"
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
    mounted = hypervisor.root / "mounted"
    mounted.rename(hypervisor.root / "away")
    mounted.mkdir()
    return mounted


@pytest.mark.parametrize("act", [trash.restore, lambda *given: trash.empty(given[0], given[1:])])
def test_an_entry_is_not_brought_back_or_emptied_by_half(hypervisor, entry, mounted, act):
    with pytest.raises(StorageError, match="mounted/disk of entry .* mount its file system; or"):
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

    with pytest.raises(StorageError, match=f"mounted/disk of entry '{entry}'"):
        trash.empty(hypervisor.settings)

    assert list(trash.listed(hypervisor.settings)) == [entry]


def test_what_is_gone_for_good_is_given_up_as_the_line_says(hypervisor, entry, mounted):
    with pytest.raises(StorageError) as caught:
        trash.restore(hypervisor.settings, entry)
    Path(str(caught.value).rpartition("mkdir -p ")[2]).mkdir(parents=True)

    said = trash.restore(hypervisor.settings, entry)

    assert said["files"] == [str(Path(hypervisor.settings.images) / "disk")]
