"""The image cache of a host: each content is kept once, judged, and never written again."""

import errno
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from saltvirt import files, locks
from saltvirt.errors import ImageError, StorageError
from saltvirt.image import clone, gate, source, tool, web
from saltvirt.units import human

_DIGEST_CHARS = 64
_PARTIAL_LIFE_S = 24 * 3600


def where(settings):
    """Return the folder of the cached images, which may be missing."""
    return Path(settings.images) / "base"


def folder(settings):
    """Return the folder of the cached images, made if it is missing."""
    base = where(settings)
    try:
        # QEMU's user must reach the files below; nobody else needs to list them.
        base.mkdir(mode=0o711, parents=True, exist_ok=True)
    except OSError as exc:
        raise StorageError(f"cannot make the image folder {base}: {exc.strerror}") from exc
    return base


def obtain(image, *, saltenv, settings, opts, say, judge=gate.judge, expected=None):
    """
    Return the cached, judged copy of an image, fetched if its content is not here yet.

    say
        Called with ``(done_bytes, total_bytes)`` while bytes arrive.
    judge
        Decides whether a fetched file may be used, and as what.
    expected
        ``{"hash_type", "hsum"}`` that the content must have, checked before anything reads it.
    """
    base = folder(settings)
    index = source.Index(base / "index.json")
    lock_dir = Path(settings.state_dir) / "locks"
    name = hashlib.sha256(image.encode()).hexdigest()
    gated = _gated(settings, image, judge, expected)
    with locks.held(lock_dir / f"source-{name}.lock"):
        known = source.known_digest(image, saltenv, opts, index)
        if known["digest"] is None:
            return _obtain_http(image, base, index, lock_dir, say, gated)
        gated.refuse_digest(known["digest"])
        with locks.held(lock_dir / f"image-{known['digest']}.lock"):
            found = _cached(base, known["digest"])
            if found:
                gated.refuse_content(found.path)
                return found
            with _part(base, image) as part:
                _bring(image, saltenv, opts, part, known["size_bytes"], say)
                _refuse_other(part, image, known["digest"])
                gated.refuse_content(part)
                return _admit(part, base, known["digest"], gated)


@dataclass(frozen=True, slots=True)
class _Gated:
    """An image and everything that may refuse it."""

    image: str
    judge: Callable
    expected: Mapping | None
    max_bytes: int

    def refuse_digest(self, digest):
        """Refuse a SHA-256 that is not the expected one, before anything is fetched."""
        if self.expected and self.expected["hash_type"] == "sha256":
            self._refuse(digest)

    def refuse_content(self, path):
        """Refuse a file without the expected checksum of any other kind."""
        if self.expected and self.expected["hash_type"] != "sha256":
            self._refuse(source.file_digest(path, self.expected["hash_type"]))

    def _refuse(self, got):
        wanted = self.expected["hsum"].lower()
        if got != wanted:
            raise ImageError(
                f"image {self.image} is not what image_hash says: its {self.expected['hash_type']} "
                f"is {got[:16]}..., not {wanted[:16]}...; nothing has read it"
            )

    def judged(self, path):
        """Return what the image is."""
        try:
            judged = self.judge(path)
        except ImageError as exc:
            raise ImageError(str(exc).replace(str(path), self.image)) from exc
        if judged.size_bytes > self.max_bytes:
            raise ImageError(
                f"image {self.image} says that it is {human(judged.size_bytes)} large; the most is "
                f"{human(self.max_bytes)} (virt:image_max_gib)"
            )
        return judged


def _gated(settings, image, judge, expected=None):
    return _Gated(image, judge, expected, int(settings.image_max_gib) << 30)


def _bring(image, saltenv, opts, part, size_bytes, say):
    if source.kind(image) == "salt":
        source.fetch_salt(image, saltenv, opts, part, size_bytes, say)
    else:
        clone.copy(source.local_path(image), part)


def _refuse_other(part, image, digest):
    got = source.file_digest(part)
    if got != digest:
        raise ImageError(
            f"image {image} changed while it was fetched, or arrived damaged "
            f"(SHA-256 {got[:16]}..., expected {digest[:16]}...); try again"
        )


def _obtain_http(url, base, index, lock_dir, say, gated):
    known = index.get(url)
    found = _cached(base, known["digest"]) if known else None
    part = base / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}.partial"
    with _said(base, url):
        try:
            version = web.fetch(url, part, say, known if found else None)
        except OSError:
            web.forget(part)  # the disk is full, or broken: nobody is to find the rest in the way
            raise
    if version is None:
        gated.refuse_digest(known["digest"])
        gated.refuse_content(found.path)
        return found
    try:
        digest = source.file_digest(part)
        gated.refuse_digest(digest)
        gated.refuse_content(part)
        with _said(base, url), locks.held(lock_dir / f"image-{digest}.lock"):
            judged = _cached(base, digest) or _admit(part, base, digest, gated)
    finally:
        web.forget(part)
    index.put(url, {"digest": digest, **version})
    return judged


@contextmanager
def _said(base, image):
    """Turn an OSError into one line that names the image."""
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(f"no space left in {base} for image {image}") from exc
        raise StorageError(f"image {image} cannot be stored in {base}: {exc}") from exc


@contextmanager
def _part(base, image):
    """Yield the path of a file that is gone afterwards unless it was admitted."""
    part = files.part_path(base, str(time.monotonic_ns()))
    try:
        with _said(base, image):
            yield part
    finally:
        part.unlink(missing_ok=True)


def _admit(part, base, digest, gated):
    """Judge a file whose digest is known, and give it its place."""
    judged = gated.judged(part)
    path = base / f"{digest}.{judged.format}"
    if judged.has_snapshots:
        # Only what the image shows is kept; what its snapshots hide is nobody's business.
        flat = Path(f"{part}.flat.part")
        with clone.storing(flat):
            tool.convert(part, judged.format, flat, judged.format)
            flat.replace(part)
    part.chmod(0o644)
    part.rename(path)
    note = {**asdict(judged), "path": str(path), "source": gated.image, "stat": _stat(path)}
    files.write(base / f"{digest}.json", json.dumps(note).encode(), 0o644)
    return replace(judged, path=str(path), has_snapshots=False)


def _stat(path):
    stat = os.stat(path)
    return [stat.st_size, stat.st_mtime_ns]


def _cached(base, digest):
    try:
        note = json.loads((base / f"{digest}.json").read_text())
        stat = _stat(note["path"])
    except (FileNotFoundError, ValueError):
        return None
    if stat != note["stat"]:
        raise ImageError(
            f"the cached image {note['path']} was changed after it was fetched; every disk "
            "over it may be damaged. If no VM uses it, remove it and its .json and try again"
        )
    return gate.Judged(path=note["path"], format=note["format"], size_bytes=note["size_bytes"])


def find(settings, digest):
    """Return the judged image of a digest, None if this host does not have it."""
    return _cached(folder(settings), digest)


def digest_of(settings, path):
    """Return the digest of a cached image by its path, None for any other file."""
    base = os.path.realpath(where(settings))
    if path and os.path.realpath(path).startswith(f"{base}/"):
        return Path(path).name.partition(".")[0]
    return None


def note(settings, digest):
    """Return ``{"source", "file_bytes"}`` of a cached image, None if this host does not have it."""
    if digest is None or find(settings, digest) is None:
        return None
    known = json.loads((folder(settings) / f"{digest}.json").read_text())
    return {"source": known["source"], "file_bytes": known["stat"][0]}


def every(settings):
    """Return ``{digest: what is noted of it}`` of all cached images; nothing is checked."""
    found = {}
    for path in sorted(folder(settings).glob("*.json")):
        if len(path.stem) == _DIGEST_CHARS:
            found[path.stem] = json.loads(path.read_text())
    return found


def look_path(settings, digest):
    """Return where it is noted what a cached image has in it."""
    return folder(settings) / f"{digest}.look"


def remove(settings, digest):
    """Remove a cached image that nobody uses; return its size in bytes, 0 if it is not here."""
    with locks.held(Path(settings.state_dir) / "locks" / f"image-{digest}.lock"):
        known = every(settings).get(digest)
        if known is None:
            return 0
        # The note goes first: an image without one is fetched anew.
        (folder(settings) / f"{digest}.json").unlink()
        Path(known["path"]).unlink(missing_ok=True)
        look_path(settings, digest).unlink(missing_ok=True)
    return known["stat"][0]


def adopt(settings, path, judged):
    """
    Have an image that was made on this host in the cache; return its digest.

    The file system keeps its content once; if the file lies on another one, it is copied when the
    first VM is made of it.
    """
    base = folder(settings)
    digest = source.known_digest(str(path), None, None, source.Index(base / "index.json"))["digest"]
    with locks.held(Path(settings.state_dir) / "locks" / f"image-{digest}.lock"):
        if _cached(base, digest) is None:
            part = files.part_path(base, digest)
            try:
                os.link(path, part)
            except OSError as exc:
                if exc.errno != errno.EXDEV:
                    raise
                return digest
            _admit(part, base, digest, _gated(settings, str(path), lambda _part: judged))
    return digest


def fetch_same(context, image, digest):
    """Fetch an image from the Salt file server if it still has this content; return whether."""
    if not image or source.kind(image["source"]) != "salt":
        return False
    try:
        known = source.known_digest(image["source"], "base", context.opts, None)
    except ImageError:
        return False
    if known["digest"] != digest:
        return False
    obtain(image["source"], saltenv="base", settings=context.settings, opts=context.opts,
           say=lambda _done, _total: None)  # fmt: skip
    return True


def incoming_path(settings, digest):
    """Return where another host writes an image before it is checked."""
    return folder(settings) / f"{digest}.incoming"


def admit_incoming(settings, digest):
    """Check an image that another host sent, and give it its place; do nothing if it is there."""
    part = incoming_path(settings, digest)
    with locks.held(Path(settings.state_dir) / "locks" / f"image-{digest}.lock"):
        if part.exists() and not find(settings, digest):
            _refuse_other(part, part, digest)
            origin = f"another host's {digest[:16]}"
            _admit(part, folder(settings), digest, _gated(settings, origin, gate.judge))
        part.unlink(missing_ok=True)


def sweep(settings):
    """Remove what fetches that were killed left behind; those that live are left alone."""
    locks.sweep(Path(settings.state_dir) / "locks")
    base = Path(settings.images) / "base"
    files.sweep(base)
    for path in base.glob("*.partial*"):
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _PARTIAL_LIFE_S:
                path.unlink()
