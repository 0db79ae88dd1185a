"""Remove unused images, and leftovers of fetches, from a host's image cache."""

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from saltvirt.core import files, locks
from saltvirt.core.errors import ImageError
from saltvirt.core.options.config import HostSettings
from saltvirt.storage.images import cache, qcow2, source, validation

# ``{digest: users}``
_Users = Mapping[str, Collection[str]]

_PARTIAL_LIFE_S = 24 * 3600
_SUFFIXES = (".qcow2", ".raw", f".{validation.NO_DISK}")
_LOST = "not known: whoever kept or removed it was killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalResult:
    """The bytes of removed images, and the users of kept images, by digest."""

    removed: Mapping[str, int]
    kept: _Users


def remove(
    settings: HostSettings,
    digests: Iterable[str],
    find_users: Callable[[], _Users],
    drop: Callable[[str], None],
) -> RemovalResult:
    """
    Remove cached images without users.

    find_users
        Returns the users of images; called after :func:`begin`.
    drop
        Removes the file of an image, or raises.
    """
    begun_digests = begin(settings, digests)
    try:
        users_by_digest = find_users() if begun_digests else {}
    except BaseException:
        keep_all_but(settings, ())
        raise
    return end(settings, begun_digests, users_by_digest, drop)


def begin(settings: HostSettings, digests: Iterable[str]) -> list[str]:
    """
    Begin to remove images: withdraw their notes; return the digests of those that were here.

    A search for users after this finds all disks made before; a build that makes a later disk
    fails by :func:`refuse_removed`. Both hold for other hosts that share the folder. A removal
    without its :func:`end` is taken back.
    """
    base, notes = cache.ensure_folder(settings), cache.read_notes(settings)
    begun_digests = []
    try:
        for digest in (candidate for candidate in digests if candidate in notes):
            with cache.lock_image(_locks(settings), digest), suppress(FileNotFoundError):
                cache.note_path(base, digest).rename(_removing_path(base, digest))
                begun_digests.append(digest)
    except BaseException:
        keep_all_but(settings, ())
        raise
    return begun_digests


def end(
    settings: HostSettings,
    digests: Iterable[str],
    users_by_digest: _Users,
    drop: Callable[[str], None],
) -> RemovalResult:
    """
    Complete begun removals; keep images with users.

    drop
        Removes the file of an image, or raises.
    """
    removed_bytes, kept_users = {}, {}
    # The caller's digests may be any text.
    removing_digests = {path.stem for path in cache.ensure_folder(settings).glob("*.removing")}
    for digest in digests:
        size_bytes = None
        if digest in removing_digests:
            with cache.lock_image(_locks(settings), digest):
                if digest in users_by_digest:
                    _keep(cache.ensure_folder(settings), digest)
                else:
                    size_bytes = _remove_unused(settings, digest, drop)
        if size_bytes is None:
            kept_users[digest] = users_by_digest.get(digest, ["a disk that is being made"])
        else:
            removed_bytes[digest] = size_bytes
    return RemovalResult(removed=removed_bytes, kept=kept_users)


def _remove_unused(settings: HostSettings, digest: str, drop: Callable[[str], None]) -> int | None:
    """Remove an image; return its bytes, None if it was kept or fetched anew meanwhile."""
    base = cache.ensure_folder(settings)
    try:
        note = json.loads(_removing_path(base, digest).read_text())
        # From here on, the removal cannot be taken back.
        _removing_path(base, digest).unlink()
    except FileNotFoundError:
        return None
    if cache.note_path(base, digest).exists():
        return None
    _remove(settings, digest, note["path"], drop)
    size_bytes: int = note["stat"][0]
    return size_bytes


def _remove(settings: HostSettings, digest: str, path: str, drop: Callable[[str], None]) -> None:
    base = cache.ensure_folder(settings)
    drop(path)
    cache.inspection_path(settings, digest).unlink(missing_ok=True)
    for flat in base.glob("*.flat"):
        with suppress(FileNotFoundError):
            if flat.read_text() == digest:
                flat.unlink()


def keep_all_but(settings: HostSettings, digests: Collection[str]) -> None:
    """Take back all begun removals except of ``digests``."""
    base = cache.ensure_folder(settings)
    for path in base.glob("*.removing"):
        if path.stem not in digests:
            _keep(base, path.stem)


def _keep(base: Path, digest: str = "*") -> None:
    """Take back the begun removal of one image, or of all images."""
    for path in base.glob(f"{digest}.removing"):
        note = path.with_suffix(".json")
        with suppress(FileNotFoundError):
            # An existing note is newer: the image was fetched again meanwhile.
            path.unlink() if note.exists() else path.rename(note)


def _removing_path(base: Path, digest: str) -> Path:
    return base / f"{digest}.removing"


def _locks(settings: HostSettings) -> Path:
    return Path(settings.state_dir) / "locks"


def refuse_removed(settings: HostSettings, path: str) -> None:
    """Raise ImageError if a cached image was removed while a disk was made over it."""
    digest = cache.digest_of(settings, path)
    if digest and cache.find(settings, digest) is None:
        raise ImageError(
            f"the image {path} was removed (virt.image_prune) while a disk was made over it; try "
            "again"
        )


def note_lost(settings: HostSettings) -> None:
    """
    Write notes for cached images without one, so that they are listed and can be removed.

    A killed process left such an image, which was checked before it got its name. This reads whole
    images: do not call it under the host's lock, for which builds wait.
    """
    base = cache.folder_path(settings)
    for path in sorted(base.glob("*.*")):
        digest = path.stem
        if path.suffix not in _SUFFIXES or not cache.is_digest(digest):
            continue
        with cache.lock_image(_locks(settings), digest), suppress(FileNotFoundError):
            note = _lost_note(path) if _is_lost(base, path) else None
            # Meanwhile, a host that shares the folder may have ended its removal.
            if note is not None and _is_lost(base, path):
                files.write(cache.note_path(base, digest), json.dumps(note).encode())


def _is_lost(base: Path, path: Path) -> bool:
    notes = (cache.note_path(base, path.stem), _removing_path(base, path.stem))
    # Another host that shares the folder may be about to write the note.
    is_old = time.time() - path.stat().st_ctime > _PARTIAL_LIFE_S
    return is_old and not any(note_path.exists() for note_path in notes)


def _lost_note(path: Path) -> dict[str, Any]:
    stat, is_same = path.stat(), source.file_digest(path) == path.stem
    try:
        header = qcow2.read(path) if path.suffix == ".qcow2" else None
    except ImageError:
        header = None
    image = validation.ValidatedImage(
        path=str(path),
        format=path.suffix[1:],
        size_bytes=header.size_bytes if header else stat.st_size,
    )
    # The stat of a changed image never matches: it cannot be used, but can be removed.
    return {**asdict(image), "source": _LOST, "stat": [stat.st_size, is_same and stat.st_mtime_ns]}


def sweep(settings: HostSettings) -> None:
    """Remove leftovers of killed fetches, and take back begun removals."""
    locks.sweep(_locks(settings))
    base = cache.folder_path(settings)
    files.sweep(base)
    _keep(base)
    for path in _find_abandoned_parts(base):
        path.unlink(missing_ok=True)


def find_abandoned(settings: HostSettings) -> list[Path]:
    """Return the leftovers of fetches that :func:`sweep` would remove."""
    base = cache.folder_path(settings)
    return sorted({*files.find_abandoned(base), *_find_abandoned_parts(base)})


def _find_abandoned_parts(base: Path) -> Iterator[Path]:
    for path in base.glob("*.partial*"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _PARTIAL_LIFE_S:
                yield path
