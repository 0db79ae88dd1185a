"""The images of a host as ``virt.images`` shows them: cached images and golden images."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from saltvirt.core.errors import ImageError
from saltvirt.core.options.config import HostSettings
from saltvirt.storage.images import cache, cachedimages, qcow2, source


def shown_images(conn: Any, settings: HostSettings) -> dict[str, dict[str, Any]]:
    """
    Return :func:`saltvirt.storage.images.cachedimages.list_images`, and golden images without a
    cached copy.

    ``virt.image_prune`` removes the cached copy of a golden image, never the image itself.
    """
    return {**dict(_golden_rows(settings)), **cachedimages.list_images(conn, settings)}


def _golden_rows(settings: HostSettings) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ``(digest, row)`` of golden images in the image folder with an indexed digest."""
    index = source.Index(cache.folder_path(settings) / "index.json")
    for path in sorted(Path(settings.images, "golden").glob("*.qcow2")):
        try:
            digest = source.remembered_digest(str(path), "base", {}, index)
            header = qcow2.read(path)
            file_bytes = path.stat().st_size
        except (ImageError, OSError):
            continue
        if digest is not None and header is not None:
            yield (
                digest,
                {
                    "source": f"{path} (golden image; the cache has no copy of it)",
                    "format": "qcow2",
                    "virtual_bytes": header.size_bytes,
                    "file_bytes": file_bytes,
                    "users": [],
                    **cachedimages.read_look(cache.inspection_path(settings, digest)),
                },
            )
