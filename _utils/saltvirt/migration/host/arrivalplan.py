"""Gather what the target of a move has of the VM, and decide what it makes for the arrival."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from saltvirt.core import wire
from saltvirt.core.errors import StorageError
from saltvirt.core.journal.movefacts import ArrivalFacts
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.libvirt import reservations
from saltvirt.migration.host.arrivalchecks import is_medium
from saltvirt.placement import whatif
from saltvirt.placement.answers import DiskFacts, FileFacts, MigrationInfo
from saltvirt.storage import diskpaths
from saltvirt.storage.images import cache, incoming
from saltvirt.storage.images.validation import ValidatedImage


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFacts:
    """
    The media and images of an arriving VM that this host has.

    present_media
        The paths of the VM's media that are here already.
    images
        ``{digest: image}`` of the images below the VM's disks; None if this host cannot get it.
    incoming
        ``{digest: path}`` for missing images: where the source writes them, for this move only.
    """

    present_media: frozenset[str]
    images: Mapping[str, ValidatedImage | None]
    incoming: Mapping[str, str]


def find_present_media(settings: HostSettings, moving: MigrationInfo) -> frozenset[str]:
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
    context: Context, moving: MigrationInfo, present_media: frozenset[str], token: str
) -> LocalFacts:
    """
    Return the media and images of a VM that this host has, after fetching images it can fetch.

    present_media
        From :func:`find_present_media`, called before anything was recorded for the VM.
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
        present_media=present_media,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ComingFile:
    """
    A file that this host makes and the source fills.

    transfer
        ``push`` (the source sends the file as it is), or ``copy`` (libvirt copies the guest's
        view).
    size_bytes
        The size of the file for ``push``, of the guest's view for ``copy``.
    format, base
        For ``copy``: the disk's format, and the image below it.
    """

    path: str
    transfer: str
    size_bytes: int
    format: str = "raw"
    base: ValidatedImage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedImage:
    """An image that the source must send first: the path to send to, and the file's size."""

    digest: str
    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalPlan:
    """
    Everything that this host makes for a VM before the source sends the VM.

    files
        The files of the VM's disks, then of its firmware; none while images are awaited.
    images
        The awaited images.
    present_media
        The VM's media that are here already.
    """

    files: tuple[ComingFile, ...] = ()
    images: tuple[AwaitedImage, ...] = ()
    present_media: tuple[str, ...] = ()

    @property
    def image_paths(self) -> dict[str, str]:
        """``{digest: path}`` of the awaited images."""
        return {image.digest: image.path for image in self.images}


def initial_facts(
    moving: MigrationInfo, present_media: frozenset[str], source: str | None
) -> ArrivalFacts:
    """
    Return the facts to record of an arrival before anything is made for it.

    present_media
        The paths of the VM's media that are here already.
    """
    files_to_make = _find_files_to_make(moving, present_media)
    return ArrivalFacts(
        uuid=moving.uuid,
        source=source,
        was_running=moving.is_running,
        # The file size of a copied disk varies, so its virtual size is recorded instead.
        sizes={file.path: file.size_bytes for file in files_to_make if file.how == "push"},
        virtual={
            file.path: [file.format, file.virtual_bytes]
            for file in files_to_make
            if isinstance(file, DiskFacts) and file.how == "copy"
            if file.virtual_bytes is not None and diskpaths.is_measured(file.format)
        },
        paths=[],
        images={},
        folders=[],
        autostart=moving.autostart or None,
        **reservations.room(whatif.needs_of_move(moving)),
    )


def decide(moving: MigrationInfo, local_facts: LocalFacts) -> ArrivalPlan:
    """Return the plan of an arrival; raise StorageError if it cannot work."""
    images = tuple(_find_awaited_images(moving, local_facts))
    files_to_make = [] if images else _find_files_to_make(moving, local_facts.present_media)
    return ArrivalPlan(
        files=tuple(_plan_file(file, local_facts) for file in files_to_make),
        images=images,
        present_media=tuple(
            disk.path for disk in moving.disks if disk.path in local_facts.present_media
        ),
    )


def _find_files_to_make(
    moving: MigrationInfo, present_media: frozenset[str]
) -> list[DiskFacts | FileFacts]:
    """Return the disks and the firmware variables for which files are to be made."""
    return find_sent_files(moving, present_media, lambda disk: disk.how != "shared")


def find_sent_files(
    moving: MigrationInfo, present_media: Collection[str], is_sent: Callable[[DiskFacts], bool]
) -> list[DiskFacts | FileFacts]:
    """
    Return the disks, and the firmware variables, that are sent to the target.

    present_media
        The VM's media that the target has already.
    is_sent
        Returns whether a disk is sent in the way that the caller asks for.
    """
    # Two drives may have the same medium.
    disks = {
        disk.path: disk for disk in moving.disks if is_sent(disk) and disk.path not in present_media
    }
    return [*disks.values(), *(file for file in moving.nvram if file.how == "push")]


def _find_awaited_images(moving: MigrationInfo, local_facts: LocalFacts) -> Iterator[AwaitedImage]:
    disks_by_base = {disk.base: disk for disk in reversed(moving.disks) if disk.how != "shared"}
    for digest, path in local_facts.incoming.items():
        image = disks_by_base[digest].image
        if image is None:
            raise StorageError(
                f"nothing is known of the image {digest[:16]} below {disks_by_base[digest].path}"
            )
        yield AwaitedImage(digest=digest, path=path, size_bytes=image.file_bytes)


def _plan_file(file: DiskFacts | FileFacts, local_facts: LocalFacts) -> ComingFile:
    if isinstance(file, FileFacts) or file.how == "push":
        return ComingFile(
            path=file.path, transfer="push", size_bytes=_require_size(file.path, file.size_bytes)
        )
    return ComingFile(
        path=file.path,
        transfer="copy",
        size_bytes=_require_size(file.path, file.virtual_bytes),
        format=file.format,
        base=local_facts.images[file.base] if file.base else None,
    )


def _require_size(path: str, size_bytes: int | None) -> int:
    if size_bytes is None:
        raise StorageError(f"the other host does not say how big {path} is")
    return size_bytes
