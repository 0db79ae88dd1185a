"""What goes from the image cache of a host: images that nobody uses, and what fetches left."""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from saltvirt import files, locks
from saltvirt.config import HostSettings
from saltvirt.errors import ImageError
from saltvirt.image import cache, rights

# ``{digest: users}``
_Users = Mapping[str, Collection[str]]

_PARTIAL_LIFE_S = 24 * 3600


def remove(settings: HostSettings, digests: Iterable[str], look: Callable[[], _Users]) -> _Users:
    """
    Remove cached images that nobody uses; return ``{digest: users}`` of those that stay after all.

    look
        Looks who uses which. Hosts that share the folder make disks meanwhile: those that were made
        before an image's note went are seen by this look, and those after see that it went
        (:func:`refuse_removed`).
    """
    base, known = cache.folder(settings), cache.every(settings)
    paths = {one: Path(known[one]["path"]) for one in digests if one in known}
    try:
        for digest in paths:
            with (
                cache.held(_locks(settings), digest),
                suppress(FileNotFoundError),
            ):
                cache.note_path(base, digest).rename(_removing_path(base, digest))
        used = look() if paths else {}
    except BaseException:
        _keep(base)
        raise
    kept = {one: _remove_unused(settings, one, path, used) for one, path in paths.items()}
    return {digest: who for digest, who in kept.items() if who}


def _remove_unused(
    settings: HostSettings, digest: str, path: Path, used: _Users
) -> Collection[str]:
    """End a removal that has begun; return who uses the image, which then stays."""
    base = cache.folder(settings)
    with cache.held(_locks(settings), digest):
        if digest in used:
            _keep(base, digest)
            return used[digest]
        if cache.note_path(base, digest).exists():
            _removing_path(base, digest).unlink(missing_ok=True)
            return ["a disk that is being made"]
        _remove(settings, digest, path)
        return ()


def _remove(settings: HostSettings, digest: str, path: Path) -> None:
    base = cache.folder(settings)
    path.unlink(missing_ok=True)
    cache.look_path(settings, digest).unlink(missing_ok=True)
    for flat in base.glob("*.flat"):
        with suppress(FileNotFoundError):
            if flat.read_text() == digest:
                flat.unlink()
    _removing_path(base, digest).unlink(missing_ok=True)


def _keep(base: Path, digest: str = "*") -> None:
    """Take back the begin of a removal that does not come to its end: of one image, or of all."""
    for path in base.glob(f"{digest}.removing"):
        note = path.with_suffix(".json")
        with suppress(FileNotFoundError):
            # One that is there is newer: of an image that was fetched again meanwhile.
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


def sweep(settings: HostSettings) -> None:
    """Remove what fetches that were killed left behind; those that live are left alone."""
    locks.sweep(_locks(settings))
    base = cache.where(settings)
    files.sweep(base)
    _keep(base)
    rights.tighten(base)
    for path in _abandoned(base):
        path.unlink(missing_ok=True)


def abandoned(settings: HostSettings) -> list[Path]:
    """Return what :func:`sweep` would remove of fetches."""
    base = cache.where(settings)
    return sorted({*files.abandoned(base), *_abandoned(base)})


def _abandoned(base: Path) -> Iterator[Path]:
    for path in base.glob("*.partial*"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _PARTIAL_LIFE_S:
                yield path
