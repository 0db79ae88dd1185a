"""qemu_img.make_image and convert write where they are told, and nowhere else."""

import asloaded
import hostile
import pytest
from saltvirt.core.errors import StorageError

QEMU_IMG = asloaded.module("_modules/qemu_img.py")


@pytest.fixture
def link(tmp_path):
    """A link that leads nowhere yet, as a user may put one where root makes an image."""
    made = tmp_path / "new.raw"
    made.symlink_to(tmp_path / "cron")
    return made


def test_no_image_is_made_through_a_link(link):
    with pytest.raises(StorageError, match="new.raw exists already"):
        QEMU_IMG.make_image(str(link), 1, "raw")

    assert link.is_symlink() and not link.exists()


def test_nor_is_one_converted(link, tmp_path):
    hostile.qemu_img("create", "-f", "qcow2", tmp_path / "a.qcow2", "1M")

    with pytest.raises(StorageError, match="new.raw exists already"):
        QEMU_IMG.convert(str(tmp_path / "a.qcow2"), str(link), "raw")

    assert link.is_symlink() and not link.exists()
