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
class Here:
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
    there = frozenset(d.path for d in moving.disks if is_medium(d) and Path(d.path).exists())
    # Looked at afterwards: a file is on record before it is made, and as long as it is removed.
    passing = (reservations.coming_files(settings, moving.name), reservations.going_files(settings))
    return there.difference(*passing)


def gather(context: Context, moving: MigrationInfo, media: frozenset[str], token: str) -> Here:
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
            images[disk.base] = _image(context, disk, disk.base)
    missing = [digest for digest, found in images.items() if found is None]
    sizes = {d.base: d.image.file_bytes for d in moving.disks if d.base in missing and d.image}
    incoming.refuse_too_large(context.settings, sizes)
    return Here(
        media=media,
        images=images,
        incoming={one: str(incoming.path(context.settings, one, token)) for one in missing},
    )


def _image(context: Context, disk: DiskFacts, digest: str) -> ValidatedImage | None:
    found = cache.find(context.settings, digest)
    if found is None and cache.fetch_same(context, wire.plain(disk.image), digest):
        found = cache.find(context.settings, digest)
    return found
