"""The master tells its hosts the digests of images: who has them need not ask its file server."""

import hashlib

import pytest
from salt.fileserver import Fileserver
from saltvirt.vm.create.master import fileserver

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
    images = fileserver.Images(opts)

    assert images.of({"image": HERE}) == {HERE: digest}
    for disks in ([{"name": "data", "image": HERE}], [{"data": {"image": HERE}}]):
        assert images.of({"disks": disks}) == {HERE: digest}


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
        {"image": HERE, "saltenv": ["base"]},
    ],
)
def test_of_all_else_the_host_finds_out_itself(opts, given):
    assert fileserver.Images(opts).of(given) == {}


def test_a_file_server_that_hashes_otherwise_says_nothing(opts):
    assert fileserver.Images({**opts, "hash_type": "md5"}).of({"image": HERE}) == {}


def test_for_many_vms_it_is_asked_once(opts, monkeypatch):
    asked, usual = [], Fileserver.file_hash

    def file_hash(self, load):
        asked.append(load["path"])
        return usual(self, load)

    monkeypatch.setattr(Fileserver, "file_hash", file_hash)
    images = fileserver.Images(opts)
    for number in range(3):
        images.of({"image": HERE, "disks": [{"name": f"d{number}", "image": HERE}]})

    assert asked == ["images/a.qcow2"]


def test_a_backend_that_fails_in_any_way_leaves_it_to_the_host(opts, monkeypatch, caplog):
    def file_hash(_self, _load):
        raise ValueError("a fault of the backend")

    monkeypatch.setattr(Fileserver, "file_hash", file_hash)

    assert fileserver.Images(opts).of({"image": HERE}) == {}
    assert "salt://images/a.qcow2 is: a fault of the backend" in caplog.text
