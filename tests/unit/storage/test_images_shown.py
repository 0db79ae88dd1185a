"""virt.images shows golden images, also those of which the cache has no copy any more."""

import subprocess
from pathlib import Path

from saltvirt.storage.images import cache, cachedimages, validation


def test_a_golden_image_is_shown_when_its_cached_copy_is_gone(hypervisor):
    settings = hypervisor.settings
    golden = Path(settings.images, "golden", "web.qcow2")
    golden.parent.mkdir(parents=True)
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", golden, "8M"], check=True)
    digest = cache.adopt(settings, golden, validation.validate(golden))
    with hypervisor.libvirt() as conn:
        assert cachedimages.shown_images(conn, settings)[digest]["source"] == str(golden)
        known = cachedimages.list_images(conn, settings)
        assert cachedimages.shown_images(conn, settings) == known

        pruned = cachedimages.prune(conn, settings, None, is_dry=False)

        assert set(pruned["removed"]) == {digest} and golden.exists()
        row = cachedimages.shown_images(conn, settings)[digest]
        assert row["source"] == f"{golden} (golden image; the cache has no copy of it)"
        assert (row["virtual_bytes"], row["users"]) == (8 << 20, [])
        assert cachedimages.prune(conn, settings, None, is_dry=True)["removed"] == {}


def test_what_is_no_golden_image_is_not_shown_as_one(hypervisor):
    folder = Path(hypervisor.settings.images, "golden")
    folder.mkdir(parents=True)
    (folder / "broken.qcow2").write_text("x")
    (folder / "gone.qcow2").symlink_to("nowhere")
    (folder / "folder.qcow2").mkdir()

    with hypervisor.libvirt() as conn:
        assert cachedimages.shown_images(conn, hypervisor.settings) == {}
