"""
The image cache of a host: it keeps each content once, validated, and never writes to it again.

A file's name is the digest of its own bytes, so another host can check a transfer. An image with
snapshots is kept flattened: ``DIGEST.flat``, by the image's digest, names the digest of that file.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from saltvirt.core import files, locks, writelimit
from saltvirt.core.errors import ImageError, StorageError
from saltvirt.core.http import web
from saltvirt.core.options.config import HostSettings
from saltvirt.core.writelimit import OverLimit
from saltvirt.storage.images import admission, clone, source, tool, validation


class _Host(Protocol):
    """The part of :class:`saltvirt.core.salt.context.Context` that is needed here."""

    @property
    def settings(self) -> HostSettings: ...

    @property
    def opts(self) -> Mapping[str, Any]: ...


_DIGEST_CHARS = 64
_DIGEST = re.compile(f"[0-9a-f]{{{_DIGEST_CHARS}}}")


def is_digest(text: str) -> bool:
    """Return whether a text has the form of a digest."""
    return _DIGEST.fullmatch(text) is not None


def folder_path(settings: HostSettings) -> Path:
    """Return the folder of the cached images, which may be missing."""
    return Path(settings.images) / "base"


def ensure_folder(settings: HostSettings) -> Path:
    """Return the folder of the cached images, made if it is missing."""
    base = folder_path(settings)
    try:
        # QEMU's user must reach the files, and need not list them.
        base.mkdir(mode=0o711, parents=True, exist_ok=True)
    except OSError as exc:
        raise StorageError(f"cannot make the image folder {base}: {exc.strerror}") from exc
    return base


def obtain(
    image: str,
    *,
    saltenv: str,
    settings: HostSettings,
    opts: Mapping[str, Any],
    progress: Callable[..., None],
    validate: admission.Validate = validation.validate,
    expected: Mapping[str, Any] | None = None,
    digest: str | None = None,
) -> validation.ValidatedImage:
    """
    Return the cached, validated copy of an image; fetch it if its content is not here yet.

    progress
        Called with ``(done_bytes, total_bytes)`` while bytes arrive.
    validate
        Validates a fetched file, or refuses it.
    expected
        ``{"hash_type", "hsum"}`` of the content, checked before anything else reads it.
    digest
        The content's present digest, if the caller knows it: with that content here, the source is
        not asked. Defaults to None.
    """
    base = ensure_folder(settings)
    index = source.Index(base / "index.json")
    lock_dir = Path(settings.state_dir) / "locks"
    name = hashlib.sha256(image.encode()).hexdigest()
    candidate = admission.from_settings(settings, image, validate, expected)
    with locks.hold_lock(lock_dir / f"source-{name}.lock"):
        info = _info_if_cached(base, digest, candidate)
        info = info or source.known_digest(image, saltenv, opts, index)
        if info["digest"] is None:
            part = base / f"{_download_name(opts, image)}.partial"
            return _obtain_http(image, part, index, lock_dir, progress, candidate)
        candidate.refuse_digest(info["digest"])
        with lock_image(lock_dir, info["digest"]):
            cached_image = _find_image(base, info["digest"], candidate)
            if cached_image:
                candidate.refuse_content(cached_image.path)
                return cached_image
            with admission.new_part(base, image) as part:
                _fetch(image, saltenv, opts, part, info["size_bytes"], progress, candidate)
                admission.refuse_other_digest(part, image, info["digest"])
                candidate.refuse_content(part)
                return _admit(part, base, info["digest"], candidate, lock_dir)


def _info_if_cached(
    base: Path, digest: str | None, candidate: admission.Admission
) -> source.ContentInfo | None:
    """Return the caller's digest as content info if that image is here, else None."""
    if digest is None or not is_digest(digest) or not _find_image(base, digest, candidate):
        return None
    return {"digest": digest, "size_bytes": None}


def peek(
    image: str, saltenv: str, settings: HostSettings, opts: Mapping[str, Any]
) -> validation.ValidatedImage | None:
    """Return the cached copy of an image if it is known to be here, else None; fetch nothing."""
    base = folder_path(settings)
    digest = source.remembered_digest(image, saltenv, opts, source.Index(base / "index.json"))
    return _read_cached(base, digest) if digest else None


def _fetch(
    image: str,
    saltenv: str,
    opts: Mapping[str, Any],
    part: Path,
    size_bytes: int | None,
    progress: Callable[..., None],
    candidate: admission.Admission,
) -> None:
    meter = candidate.meter(part.parent)
    if source.kind(image) == "salt":
        source.fetch_salt(image, saltenv, opts, part, size_bytes, progress, meter)
    else:
        clone.copy(source.local_path(image), part, meter)


def _download_name(opts: Mapping[str, Any], url: str) -> str:
    """Return a download's name, unique to this host: hosts may share the folder."""
    return hashlib.sha256(f"{opts.get('id')} {url}".encode()).hexdigest()[:16]


def _obtain_http(
    url: str,
    part: Path,
    index: source.Index,
    lock_dir: Path,
    progress: Callable[..., None],
    candidate: admission.Admission,
) -> validation.ValidatedImage:
    base, index_entry = part.parent, index.get(source.web_key(url))
    cached_image = _find_image(base, index_entry["digest"], candidate) if index_entry else None
    last = index_entry if cached_image else None
    with admission.translate_errors(base, candidate.image):
        try:
            version = web.fetch(url, part, progress, last, candidate.meter(base))
        except (OSError, OverLimit):
            # Free the space: the disk may be full.
            web.forget_part(part)
            raise
    if version is None and cached_image is not None:
        candidate.refuse_digest(index_entry["digest"])
        candidate.refuse_content(cached_image.path)
        return cached_image
    try:
        digest = source.file_digest(part)
        candidate.refuse_digest(digest)
        candidate.refuse_content(part)
        with admission.translate_errors(base, candidate.image), lock_image(lock_dir, digest):
            validated_image = _find_image(base, digest, candidate) or _admit(
                part, base, digest, candidate, lock_dir
            )
    finally:
        web.forget_part(part)
    index.put(source.web_key(url), {"digest": digest, **(version or {})})
    return validated_image


def _admit(
    part: Path, base: Path, digest: str, candidate: admission.Admission, lock_dir: Path
) -> validation.ValidatedImage:
    """Validate a file with a known digest; place it, or its flattened form, in the cache."""
    validated_image = candidate.validated(part)
    if not validated_image.has_snapshots:
        return place(part, base, digest, validated_image, candidate.image)
    # Drop the content of snapshots, which may be private.
    flat = Path(f"{part}.flat.part")
    with clone.remove_on_failure(flat):
        tool.convert(
            part, validated_image.format, flat, validated_image.format, candidate.meter(base)
        )
        flat.replace(part)
    flat_digest = source.file_digest(part)
    # No deadlock: a holder of this lock has a flat image, and takes no second image's lock.
    with lock_image(lock_dir, flat_digest):
        validated_image = replace(validated_image, has_snapshots=False)
        cached_image = _read_cached(base, flat_digest) or place(
            part, base, flat_digest, validated_image, candidate.image
        )
    files.write(_flat_path(base, digest), flat_digest.encode())
    return cached_image


def place(
    part: Path,
    base: Path,
    digest: str,
    validated_image: validation.ValidatedImage,
    origin: str,
    *,
    is_golden: bool = False,
) -> validation.ValidatedImage:
    """
    Move a checked file to its place in the cache, and write its note.

    is_golden
        Whether ``origin`` is a golden image of this host. Defaults to False.
    """
    path = base / f"{digest}.{validated_image.format}"
    # QEMU and the user of the appliance read disks; only the minion reads other files.
    part.chmod(0o600 if validated_image.format == validation.NO_DISK else 0o644)
    # Sync before writing the note, which says that the file is complete.
    files.make_durable(part)
    # Without a note a new file would be lost; but disks may be based on an older file.
    with nullcontext() if path.exists() else clone.remove_on_failure(path):
        part.rename(path)
        files.sync_folder(base)
        note = {**asdict(validated_image), "path": str(path), "source": origin, "stat": _stat(path)}
        note |= {"is_golden": True} if is_golden else {}
        files.write(note_path(base, digest), json.dumps(note).encode())
    return replace(validated_image, path=str(path))


def let_qemu_read(path: str | Path) -> None:
    """Let QEMU read a file of the cache that is not a disk, such as a kernel."""
    Path(path).chmod(0o644)


def _flat_path(base: Path, digest: str) -> Path:
    return base / f"{digest}.flat"


def lock_image(lock_dir: Path, digest: str) -> AbstractContextManager[Any]:
    """Return this host's lock for making or removing a cached image."""
    return locks.hold_lock(lock_dir / f"image-{digest}.lock")


def note_path(base: Path, digest: str) -> Path:
    """Return the path of a cached image's note; an image without one is fetched anew."""
    return base / f"{digest}.json"


def _find_image(
    base: Path, digest: str, candidate: admission.Admission
) -> validation.ValidatedImage | None:
    """Return the cached copy of an image, maybe flattened, by its digest; None if not here."""
    try:
        flat_digest = _flat_path(base, digest).read_text()
    except FileNotFoundError:
        return _read_cached(base, digest)
    return None if candidate.needs_content() else _read_cached(base, flat_digest)


def _stat(path: str | Path) -> list[int]:
    stat = os.stat(path)
    return [stat.st_size, stat.st_mtime_ns]


def _read_cached(base: Path, digest: str) -> validation.ValidatedImage | None:
    try:
        note = json.loads(note_path(base, digest).read_text())
        stat = _stat(note["path"])
    except (FileNotFoundError, ValueError):
        return None
    if stat != note["stat"]:
        raise ImageError(
            f"the cached image {note['path']} was changed after it was fetched; every disk "
            "over it may be damaged. If no VM uses it, remove it and its .json and try again"
        )
    return validation.ValidatedImage(
        path=note["path"],
        format=note["format"],
        size_bytes=note["size_bytes"],
        needs_uefi=note["needs_uefi"],
    )


def find(settings: HostSettings, digest: str) -> validation.ValidatedImage | None:
    """Return the validated image of a digest, None if this host does not have it."""
    return _read_cached(ensure_folder(settings), digest)


def digest_of(settings: HostSettings, path: str | None) -> str | None:
    """Return the digest of a cached image by its path, None for any other file."""
    base = os.path.realpath(folder_path(settings))
    if path and os.path.realpath(path).startswith(f"{base}/"):
        return Path(path).name.partition(".")[0]
    return None


def is_golden_or_link(settings: HostSettings, path: str | Path) -> bool:
    """Return whether a file is a golden image of this host, or a hard link to a cached image."""
    try:
        stat = os.stat(path)
    except OSError:
        return False
    links = folder_path(settings).glob("*.*") if stat.st_nlink > 1 else ()
    golden_paths = (
        note["source"] for note in read_notes(settings).values() if note.get("is_golden")
    )
    return any(_is_same(candidate, stat) for candidate in (*links, *golden_paths))


def _is_same(path: str | Path, stat: os.stat_result) -> bool:
    with suppress(OSError):
        return os.path.samestat(os.stat(path), stat)
    return False


def find_sendable(settings: HostSettings, digest: str) -> validation.ValidatedImage:
    """Return the image of a digest; raise StorageError if this host does not have it."""
    image = find(settings, digest)
    if image is None:
        raise StorageError(f"the image {digest[:16]} is not on this host any more")
    return image


def read_note(settings: HostSettings, digest: str | None) -> dict[str, Any] | None:
    """Return ``{"source", "file_bytes"}`` of a cached image, None if this host does not have it."""
    if digest is None or find(settings, digest) is None:
        return None
    record = json.loads(note_path(ensure_folder(settings), digest).read_text())
    return {"source": record["source"], "file_bytes": record["stat"][0]}


def read_notes(settings: HostSettings) -> dict[str, dict[str, Any]]:
    """Return ``{digest: note}`` of all cached images, unchecked."""
    notes = {}
    for path in sorted(folder_path(settings).glob("*.json")):
        # Hosts that share the folder may remove a note, or put other files there.
        with suppress(FileNotFoundError, ValueError):
            if is_digest(path.stem):
                notes[path.stem] = json.loads(path.read_text())
    return notes


def inspection_path(settings: HostSettings, digest: str) -> Path:
    """Return the path of a cached image's inspection."""
    return ensure_folder(settings) / f"{digest}.look"


def adopt(settings: HostSettings, path: Path, validated_image: validation.ValidatedImage) -> str:
    """
    Copy an image that was made on this host into the cache; return its digest.

    The copy may share the image's blocks, but not its inode: writing to the image must not change
    the disks based on the copy. Raise :class:`saltvirt.core.writelimit.OverLimit` without room for
    the copy.
    """
    base, lock_dir = ensure_folder(settings), Path(settings.state_dir) / "locks"
    digest = source.local_digest(str(path), source.Index(base / "index.json"))
    with lock_image(lock_dir, digest):
        if _read_cached(base, digest) is None:
            with admission.new_part(base, str(path)) as part:
                clone.copy(path, part, writelimit.from_settings(settings).meter(path, base))
                admission.refuse_other_digest(part, path, digest)
                place(part, base, digest, validated_image, str(path), is_golden=True)
    return digest


def fetch_same(context: _Host, image: Mapping[str, Any] | None, digest: str) -> bool:
    """Fetch an image from the Salt file server if that has this content; return whether."""
    if not image or source.kind(image["source"]) != "salt":
        return False
    try:
        index = source.Index(ensure_folder(context.settings) / "index.json")
        info = source.known_digest(image["source"], "base", context.opts, index)
    except ImageError:
        return False
    if info["digest"] != digest:
        return False
    obtain(
        image["source"],
        saltenv="base",
        settings=context.settings,
        opts=context.opts,
        progress=lambda _done_bytes, _total_bytes: None,
    )
    # An image with snapshots is kept flattened, under another digest.
    return find(context.settings, digest) is not None
