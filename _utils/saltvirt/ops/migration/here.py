"""What an arrival is decided by: facts of this host, gathered once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from saltvirt import wire
from saltvirt.config import HostSettings
from saltvirt.image import cache, incoming
from saltvirt.image.validation import ValidatedImage
from saltvirt.ops import reservations
from saltvirt.ops.context import Context
from saltvirt.ops.migration.checks import is_medium
from saltvirt.placement.answers import DiskFacts, MigrationInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFacts:
    """
    What this host has of what a VM that comes is made of.

    media
        The paths of its media that are here already.
    images
        The images below its disks by their digests, None of one that is not here and cannot be
        fetched.
    incoming
        Where the other host is to write the latter, for this move alone, by their digests.
    """

    media: frozenset[str]
    images: Mapping[str, ValidatedImage | None]
    incoming: Mapping[str, str]


def media(settings: HostSettings, moving: MigrationInfo) -> frozenset[str]:
    """Return the paths of a VM's media that this host has already, and that stay here."""
    present_paths = frozenset(
        disk.path for disk in moving.disks if is_medium(disk) and Path(disk.path).exists()
    )
    # Looked at afterwards: a file is on record before it is made, and as long as it is removed.
    passing_files = (
        reservations.coming_files(settings, moving.name),
        reservations.going_files(settings),
    )
    return present_paths.difference(*passing_files)


def gather(
    context: Context, moving: MigrationInfo, media: frozenset[str], token: str
) -> LocalFacts:
    """
    Return what this host has of a VM; images that it can fetch are fetched.

    media
        What :func:`media` returned before anything was noted of the VM.
    token
        That of the move.
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
