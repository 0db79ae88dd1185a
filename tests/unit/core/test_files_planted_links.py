"""Root opens no file behind a link that another user has planted."""

import errno
import os

import pytest
from saltvirt.core import filecontent, files
from saltvirt.core.errors import StorageError
from saltvirt.core.writelimit import Room
from saltvirt.libvirt.domains import migrate
from saltvirt.storage.images import clone
from saltvirt.storage.images.validation import ValidatedImage

QEMU = 64055  # the user that may write to the folder


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "shadow"
    path.write_bytes(b"root's own")
    return path


@pytest.fixture
def planted_link(tmp_path, secret):
    """A link to a file of root's, in place of a file that QEMU's user may replace."""
    path = tmp_path / "web1_VARS.fd"
    path.symlink_to(secret)
    os.chown(path, QEMU, QEMU, follow_symlinks=False)
    return path


def _read(path):
    with open(path, "rb", opener=files.open_by_trusted_links) as handle:
        return handle.read()


def test_the_target_of_a_planted_link_is_not_read(planted_link):
    with pytest.raises(OSError, match="a link that root has not made") as caught:
        _read(planted_link)
    assert caught.value.errno == errno.ELOOP
    with pytest.raises(OSError, match="a link that root has not made"):
        filecontent.digest(planted_link)


def test_a_planted_link_is_not_sent_to_another_host(planted_link):
    class Connection:
        def storageVolLookupByPath(self, _path):
            return self

        def newStream(self, _flags):
            return self

        def upload(self, *_args):
            pytest.fail("something is sent")

    with pytest.raises(StorageError, match="cannot read .*web1_VARS.fd: it is a link that root"):
        migrate.push(Connection(), planted_link, "/srv/a")


def test_a_planted_link_is_neither_copied_nor_written_over(planted_link, secret, tmp_path):
    how = {"is_overlay": False, "format": "raw", "size_bytes": 10}
    target = tmp_path / "web2_VARS.fd"
    target.touch()
    room = Room(max_bytes=1 << 30, reserve_bytes=0, limit_s=60)

    with pytest.raises(Exception, match="a link that root has not made"):
        clone.make(_image(planted_link), target, how, room)
    target_file = tmp_path / "own"
    target_file.write_bytes(b"guest's own")
    with pytest.raises(Exception, match="Too many levels of symbolic links"):
        clone.make(_image(target_file), planted_link, how, room)
    assert secret.read_bytes() == b"root's own"


def _image(path):
    return ValidatedImage(path=str(path), format="raw", size_bytes=10)


def test_a_link_that_root_or_the_owner_of_the_file_has_made_is_followed(
    planted_link, secret, tmp_path
):
    os.chown(secret, QEMU, QEMU)
    assert _read(planted_link) == b"root's own"
    link = tmp_path / "link"
    link.symlink_to("shadow")
    assert _read(link) == _read(secret) == b"root's own"


def test_a_chain_is_only_as_trusted_as_each_of_its_links(planted_link, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(planted_link.name)

    with pytest.raises(OSError, match="a link that root has not made"):
        _read(link)


def test_a_link_that_is_replaced_after_its_check_is_detected(planted_link, monkeypatch):
    lstat = os.lstat

    def replaced(path):
        planted_link.unlink(missing_ok=True)
        planted_link.write_bytes(b"harmless")
        return lstat(path)

    monkeypatch.setattr(os, "lstat", replaced)
    with pytest.raises(OSError, match="replaced while it was opened"):
        _read(planted_link)


def test_a_pipe_or_a_device_does_not_block_root(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    for opener in (files.open_by_trusted_links, files.open_no_link):
        with pytest.raises(OSError, match="not a regular file"):
            opener(tmp_path / "pipe", os.O_RDONLY)


def test_only_a_file_itself_is_written_to_or_restricted(planted_link, secret):
    secret.chmod(0o644)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        files.open_no_link(planted_link, os.O_WRONLY)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        files.restrict(planted_link)
    assert secret.stat().st_mode & 0o777 == 0o644
    files.restrict(secret)
    assert secret.stat().st_mode & 0o777 == 0o600
