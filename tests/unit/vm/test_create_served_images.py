"""The master tells its hosts the digests of images: who has them need not ask its file server."""

import hashlib

import fleetkit
import pytest
from salt.fileserver import Fileserver
from saltvirt.vm.create.master import offers

HERE = "salt://images/a.qcow2"


@pytest.fixture
def opts(opts, tmp_path):
    """A master with an image on its file server."""
    folder = tmp_path / "srv/images"
    folder.mkdir(parents=True)
    (folder / "a.qcow2").write_text("an image")
    return {**opts, "file_roots": {"base": [str(tmp_path / "srv")]}, "hash_type": "sha256"}


def test_what_the_file_server_has_is_told_wherever_a_call_names_it(opts):
    digest = hashlib.sha256(b"an image").hexdigest()
    images = offers.Images(opts)

    for given in (
        {"image": HERE},
        {"disks": [{"name": "data", "image": HERE}]},
        {"disks": [{"data": {"image": HERE}}]},
    ):
        request = fleetkit.request(**given)
        assert images.digests(request.images, request.saltenv) == {HERE: digest}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"image": None},
        {"image": "/srv/a.qcow2"},
        {"image": "https://example.org/a.qcow2"},
        {"image": "salt://images/b.qcow2"},
        {"image": f"{HERE}?saltenv=base"},
        {"image": HERE, "saltenv": "dev"},
    ],
)
def test_of_all_else_the_host_finds_out_itself(opts, given):
    request = fleetkit.request(**given)

    assert offers.Images(opts).digests(request.images, request.saltenv) == {}


def test_a_file_server_that_hashes_otherwise_says_nothing(opts):
    assert offers.Images({**opts, "hash_type": "md5"}).digests([HERE], "base") == {}


def test_for_many_vms_it_is_asked_once(opts, monkeypatch):
    asked, usual = [], Fileserver.file_hash

    def file_hash(self, load):
        asked.append(load["path"])
        return usual(self, load)

    monkeypatch.setattr(Fileserver, "file_hash", file_hash)
    images = offers.Images(opts)
    for _vm in range(3):
        images.digests([HERE], "base")

    assert asked == ["images/a.qcow2"]


def test_a_backend_that_fails_in_any_way_leaves_it_to_the_host(opts, monkeypatch, caplog):
    def file_hash(_self, _load):
        raise ValueError("a fault of the backend")

    monkeypatch.setattr(Fileserver, "file_hash", file_hash)

    assert offers.Images(opts).digests([HERE], "base") == {}
    assert "salt://images/a.qcow2 is: a fault of the backend" in caplog.text
