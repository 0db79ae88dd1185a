"""An image that cannot be noted is not kept: nobody would find it, to use or to remove it."""

import errno
import os

import pytest
from fetching import obtain
from saltvirt.core import files
from saltvirt.core.errors import StorageError
from saltvirt.storage.images import cache, source


@pytest.fixture
def raw_disk(tmp_path):
    """A raw disk."""
    path = tmp_path / "disk.raw"
    path.write_bytes((bytes(510) + b"\x55\xaa").ljust(1 << 20, b"\0"))
    return path


@pytest.fixture
def broken(monkeypatch):
    """Have no note of an image be written: a full disk, or whoever is interrupted just then."""
    write = files.write

    def break_with(error):
        def fails(path, *given):
            if os.fspath(path).endswith(".json") and "index" not in os.fspath(path):
                raise error
            write(path, *given)

        monkeypatch.setattr(files, "write", fails)

    return break_with


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_it_takes_no_room(host, raw_disk, broken, error):
    broken(error)

    with pytest.raises((StorageError, KeyboardInterrupt)):
        obtain(host, raw_disk)

    assert [one.name for one in cache.ensure_folder(host).iterdir() if one.suffix == ".raw"] == []


def test_one_that_disks_may_be_based_on_stays(host, raw_disk, broken):
    there = obtain(host, raw_disk)
    digest = source.file_digest(raw_disk)
    cache.note_path(cache.ensure_folder(host), digest).unlink()
    broken(OSError(errno.ENOSPC, "No space left on device"))

    with pytest.raises(StorageError):
        obtain(host, raw_disk)

    assert os.path.exists(there.path)
