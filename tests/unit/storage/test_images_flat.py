"""Of an image with snapshots something else is kept, called by its own digest: it can be sent."""

import os
import shutil
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import pytest
import salt.config
from fetching import obtain
from saltvirt.core.errors import ImageError, StorageError
from saltvirt.storage.images import cache, incoming, removal, source


@pytest.fixture
def image(tmp_path):
    """A qcow2 image with a snapshot."""
    path = tmp_path / "files" / "snapshots.qcow2"
    path.parent.mkdir()
    for argv in (["create", "-q", "-f", "qcow2", path, "1M"], ["snapshot", "-c", "before", path]):
        subprocess.run(["qemu-img", *argv], check=True)
    return path


@pytest.fixture
def other(host, tmp_path):
    """Settings of another host."""
    return replace(host, images=str(tmp_path / "other"), state_dir=str(tmp_path / "other-state"))


@pytest.fixture
def context(host, tmp_path):
    """A job on a host whose file server is the folder of the images."""
    opts = {
        **salt.config.minion_config(None),
        "file_client": "local",
        "file_roots": {"base": [str(tmp_path / "files")]},
        "cachedir": str(tmp_path / "cache"),
        "id": "hyper1",
        "__role": "minion",
    }
    return SimpleNamespace(opts=opts, settings=host)


def test_what_is_kept_can_be_sent_to_another_host(host, other, image):
    got = obtain(host, image)
    digest = cache.digest_of(host, got.path)
    shutil.copy(cache.find_sendable(host, digest).path, incoming.path(other, digest, "t1"))

    incoming.admit(other, digest, incoming.path(other, digest, "t1"))

    assert digest == source.file_digest(got.path)
    assert digest == cache.digest_of(other, cache.find(other, digest).path)


@pytest.mark.parametrize("kind", [None, "sha256", "sha512"])
def test_the_checksum_of_the_image_is_the_one_that_counts(host, image, kind):
    expected = kind and {"hash_type": kind, "hsum": source.file_digest(image, kind)}

    def get():
        return cache.obtain(
            str(image),
            saltenv="base",
            settings=host,
            opts={},
            progress=lambda *_: None,
            expected=expected,
        )

    assert get() == get()
    assert len(cache.read_notes(host)) == 1


def test_what_is_kept_is_removed_with_all_that_leads_to_it(host, image):
    digest = cache.digest_of(host, obtain(host, image).path)

    assert removal.remove(host, [digest], dict, os.unlink).kept == {}

    assert sorted(path.name for path in cache.ensure_folder(host).iterdir()) == ["index.json"]


def test_a_host_that_has_something_else_of_an_image_does_not_say_that_it_has_it(context, image):
    digest = source.file_digest(image)
    fetched = cache.fetch_same(context, {"source": f"salt://{image.name}"}, digest)

    assert (fetched, cache.find(context.settings, digest)) == (False, None)
    assert len(cache.read_notes(context.settings)) == 1


def test_an_image_with_snapshots_is_not_taken_from_another_host(other, image):
    digest = source.file_digest(image)
    shutil.copy(image, incoming.path(other, digest, "t1"))

    with pytest.raises(ImageError, match="has snapshots, and hosts keep images without any"):
        incoming.admit(other, digest, incoming.path(other, digest, "t1"))

    assert cache.read_notes(other) == {}


def test_an_image_that_is_not_there_is_not_sent(host):
    with pytest.raises(StorageError, match="is not on this host any more"):
        cache.find_sendable(host, "0" * 64)


@pytest.mark.parametrize("name", ["ab" * 32, "z" * 64, "x"])
def test_a_file_in_the_cache_that_is_no_note_is_passed_over(host, name):
    """Hosts that share the folder can put files there."""
    (cache.ensure_folder(host) / f"{name}.json").write_bytes(b"\xff\xfe")

    assert cache.read_notes(host) == {}
