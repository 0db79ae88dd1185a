"""A golden image without room in the cache is complete, and a warning names what is missing."""

from pathlib import Path

from saltvirt.core.writelimit import OverLimit
from saltvirt.seeding import golden
from saltvirt.seeding.seedmodel import Inspection
from saltvirt.storage.images import cache, source, validation


def test_without_room_in_the_cache_a_golden_image_is_built_with_a_warning(
    hypervisor, tmp_path, monkeypatch
):
    path = Path(tmp_path, "web.qcow2")
    path.write_bytes(b"x" * 512)
    image = validation.ValidatedImage(path=str(path), format="qcow2", size_bytes=512)

    def raise_over_limit(*_args):
        raise OverLimit("no room for image web")

    # A real full disk would be full for more than the cache.
    monkeypatch.setattr(cache, "adopt", raise_over_limit)
    digest, warnings = golden._cache_copy(
        hypervisor.settings, path, image, Inspection(root="/dev/sda1")
    )

    assert digest == source.file_digest(path)
    assert warnings == [
        f"the cache has no copy of {path}, which the first VM of it needs: no room for image web"
    ]
    assert cache.inspection_path(hypervisor.settings, digest).exists()
