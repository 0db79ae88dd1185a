"""Facts of this host by which an arrival is decided, gathered once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from saltvirt.core import wire
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.libvirt import reservations
from saltvirt.migration.host.arrivalchecks import is_medium
from saltvirt.placement.answers import DiskFacts, MigrationInfo
from saltvirt.storage.images import cache, incoming
from saltvirt.storage.images.validation import ValidatedImage


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFacts:
    """
    The media and images of an arriving VM that this host has.

    media
        The paths of the VM's media that are here already.
    images
        ``{digest: image}`` of the images below the VM's disks; None if this host cannot get it.
    incoming
        ``{digest: path}`` for missing images: where the source writes them, for this move only.
    """

    media: frozenset[str]
    images: Mapping[str, ValidatedImage | None]
    incoming: Mapping[str, str]


def media(settings: HostSettings, moving: MigrationInfo) -> frozenset[str]:
    """Return the paths of a VM's media that exist on this host and stay here."""
    present_paths = frozenset(
        disk.path for disk in moving.disks if is_medium(disk) and Path(disk.path).exists()
    )
    # Read records after files: a file is on record before it is made, and until it is removed.
    passing_files = (
        reservations.coming_files(settings, moving.name),
        reservations.going_files(settings),
    )
    return present_paths.difference(*passing_files)


def gather(
    context: Context, moving: MigrationInfo, media: frozenset[str], token: str
) -> LocalFacts:
    """
    Return the media and images of a VM that this host has, after fetching images it can fetch.

    media
        From :func:`media`, called before anything was recorded for the VM.
    token
        The move's token.
    """
    images: dict[str, ValidatedImage | None] = {}
    for disk in moving.disks:
        if disk.how != "shared" and disk.base and disk.base not in images:
            images[disk.base] = _find_image(context, disk, disk.base)
    missing_digests = [digest for digest, image in images.items() if image is None]
    sizes = {
        d.base: d.image.file_bytes for d in moving.disks if d.base in missing_digests and d.image
    }
    incoming.refuse_too_large(context.settings, sizes)
    return LocalFacts(
        media=media,
        images=images,
        incoming={
            missing_digest: str(incoming.path(context.settings, missing_digest, token))
            for missing_digest in missing_digests
        },
    )


def _find_image(context: Context, disk: DiskFacts, digest: str) -> ValidatedImage | None:
    image = cache.find(context.settings, digest)
    if image is None and cache.fetch_same(context, wire.plain(disk.image), digest):
        image = cache.find(context.settings, digest)
    return image
