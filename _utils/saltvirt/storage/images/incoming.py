"""Admit images that another host sends to the cache, after checking them."""

from collections.abc import Mapping
from pathlib import Path

from saltvirt.core import writelimit
from saltvirt.core.errors import ImageError
from saltvirt.core.options.config import HostSettings
from saltvirt.storage.images import admission, cache, validation


def path(settings: HostSettings, digest: str, token: str) -> Path:
    """Return the path to which another host sends an image, for one move, unchecked yet."""
    return cache.ensure_folder(settings) / f"{digest}.{token}.incoming"


def refuse_too_large(settings: HostSettings, sizes: Mapping[str, int]) -> None:
    """Raise OverLimit if an image of ``{digest: bytes}`` would not fit on this host."""
    for digest, size_bytes in sizes.items():
        writelimit.from_settings(settings).meter(digest[:16], cache.folder_path(settings)).expect(
            size_bytes
        )


def admit(settings: HostSettings, digest: str, part: Path) -> None:
    """Check an image that another host sent, and place it; drop it if it is cached already."""
    origin = f"another host's {digest[:16]}"
    with cache.lock_image(Path(settings.state_dir) / "locks", digest):
        if not cache.find(settings, digest):
            admission.refuse_other_digest(part, part, digest)
            validated_image = admission.from_settings(
                settings, origin, validation.validate
            ).validated(part)
            if validated_image.has_snapshots:
                raise ImageError(f"image {origin} has snapshots, and hosts keep images without any")
            cache.place(part, cache.ensure_folder(settings), digest, validated_image, origin)
        part.unlink(missing_ok=True)
