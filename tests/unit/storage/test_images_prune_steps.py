"""The two steps of virt.image_prune as Salt calls it: what is typed, and what is no step."""

import hashlib
import time
from pathlib import Path

import asloaded
import pytest
from saltvirt.core import locks
from saltvirt.core.errors import BadArgument, ImageError
from saltvirt.core.options import config
from saltvirt.core.options.config import HostSettings
from saltvirt.storage.images import cache, removal
from saltvirt.storage.images import source as source_

MODULE = asloaded.module("_modules/virt_image.py")


@pytest.fixture
def image(tmp_path, monkeypatch):
    """The digest of the one image of a host."""
    source = tmp_path / "source.raw"
    source.write_bytes((bytes(510) + b"\x55\xaa").ljust(1 << 20, b"\0"))
    settings = HostSettings(
        images=str(tmp_path / "images"), state_dir=str(tmp_path / "state"), uri="test:///default"
    )
    cache.obtain(
        str(source), saltenv="base", settings=settings, opts={}, progress=lambda _done, _total: None
    )
    monkeypatch.setattr(config, "host_settings", lambda *_: settings)
    return hashlib.sha256(source.read_bytes()).hexdigest()


@pytest.mark.parametrize("step", ["begin", "look", "end"])
def test_a_step_takes_a_text_as_a_call_without_one_does(image, step):
    if step == "end":
        MODULE.image_prune([image], step="begin")

    said = MODULE.image_prune(f"{image},{'0' * 64}", step=step)

    if step == "begin":
        assert said == {"removed": {}, "kept": {}, "begun": [image]}
    elif step == "end":
        assert list(said["removed"]) == [image] and list(said["kept"]) == ["0" * 64]
    else:
        assert said == {"removed": {}, "kept": {}}


@pytest.mark.parametrize("step", ["begin", "look", "end"])
def test_what_is_no_list_is_refused_in_a_line(image, step):
    with pytest.raises(BadArgument, match="digests: 5 is not text; quote it"):
        MODULE.image_prune(5, step=step)


@pytest.mark.parametrize("step", ["begin", "look", "end"])
def test_a_step_does_what_it_does_and_is_no_dry_run(image, step):
    if step == "end":
        MODULE.image_prune([image], step="begin")

    with pytest.raises(BadArgument, match="^dry_run: "):
        MODULE.image_prune([image], dry_run=True, step=step)

    assert MODULE.image_prune(step="end") == {"removed": {}, "kept": {}}
    assert list(MODULE.image_prune(dry_run=True)["removed"]) == [image]


@pytest.mark.parametrize("content", ["as it was", "changed"])
def test_an_image_whose_note_was_never_written_is_removed_after_a_day(image, monkeypatch, content):
    # Its fetch was killed before the note, or its removal after it.
    base = cache.folder_path(config.host_settings())
    cache.note_path(base, image).unlink()
    if content == "changed":
        with (base / f"{image}.raw").open("ab") as file:
            file.write(b"x")

    assert MODULE.image_prune() == {"removed": {}, "kept": {}}
    later = time.time() + 25 * 3600
    monkeypatch.setattr(time, "time", lambda: later)

    assert list(MODULE.image_prune(dry_run=True)["removed"]) == [image]
    assert list(MODULE.image_prune()["removed"]) == [image]
    assert [one.name for one in base.iterdir() if one.name.startswith(image)] == []


@pytest.fixture
def lost(image, monkeypatch):
    """An image without a note, of two days ago; what is to be called when it is read."""
    base, reads = cache.folder_path(config.host_settings()), []
    cache.note_path(base, image).unlink()
    later, digest = time.time() + 48 * 3600, source_.file_digest
    monkeypatch.setattr(time, "time", lambda: later)

    def read(path):
        found = digest(path)
        reads.pop()(path)
        return found

    monkeypatch.setattr(source_, "file_digest", read)
    return image, reads


@pytest.mark.parametrize("how", [{"dry_run": True}, {}, {"step": "begin"}])
def test_nobody_waits_for_the_hosts_lock_while_such_an_image_is_read(lost, how):
    image, reads = lost
    state, seen = Path(config.host_settings().state_dir), []
    reads.append(lambda _path: seen.append(locks.is_held(state / "claims.lock")))

    MODULE.image_prune([image] if "step" in how else None, **how)

    assert seen == [False]


def test_one_that_another_host_has_removed_while_it_was_read_is_not_noted(lost):
    image, reads = lost
    settings = config.host_settings()
    reads.append(lambda path: path.unlink())

    removal.note_lost(settings)

    assert not cache.note_path(cache.folder_path(settings), image).exists()


def test_one_that_was_changed_is_noted_and_never_used(image, monkeypatch):
    settings = config.host_settings()
    base = cache.folder_path(settings)
    cache.note_path(base, image).unlink()
    with (base / f"{image}.raw").open("ab") as file:
        file.write(b"x")
    later = time.time() + 25 * 3600
    monkeypatch.setattr(time, "time", lambda: later)

    removal.note_lost(settings)

    with pytest.raises(ImageError, match="was changed after it was fetched"):
        cache.find(settings, image)


def test_no_step_is_one_of_three(image):
    with pytest.raises(BadArgument, match="step: 'ende'; one of begin, look, end"):
        MODULE.image_prune(step="ende")
