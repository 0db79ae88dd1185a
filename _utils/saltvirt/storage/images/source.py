"""Sources of images: parse them, find out digests, fetch from the Salt file server."""

import contextvars
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

import salt.fileclient
import salt.utils.url
from salt.exceptions import SaltException

from saltvirt.core import files, writelimit
from saltvirt.core.arguments import hide_credentials
from saltvirt.core.errors import BadArgument, ImageError

_CHUNK = 1 << 20


class ContentInfo(TypedDict):
    """Facts about a content before its fetch; None for facts that only a fetch can tell."""

    digest: str | None
    size_bytes: int | None


def kind(source: str) -> str:
    """Return ``salt``, ``http`` or ``file`` of an image source; refuse anything else."""
    if source.startswith("salt://"):
        return "salt"
    if source.startswith(("http://", "https://")):
        return "http"
    if source.startswith("file:///") or source.startswith("/"):
        return "file"
    raise BadArgument(
        "image",
        f"{hide_credentials(source)!r} is not an image: write salt://path, http(s)://..., "
        "file:///path or "
        "/path",
    )


def known_digest(source: str, saltenv: str, opts: Mapping[str, Any], index: "Index") -> ContentInfo:
    """
    Return ``{"digest", "size_bytes"}`` of the content without fetching it.

    ``digest`` is None if only a fetch can tell.
    """
    source_kind = kind(source)
    if source_kind == "salt":
        return _salt_digest(source, saltenv, opts)
    if source_kind == "file":
        path = local_path(source)
        return {"digest": local_digest(path, index), "size_bytes": _stat(path).st_size}
    return {"digest": None, "size_bytes": None}


def remembered_digest(
    source: str, saltenv: str, opts: Mapping[str, Any], index: "Index"
) -> str | None:
    """Return the digest of a content without reading it; None if it is not known yet."""
    source_kind = kind(source)
    if source_kind == "salt":
        return _salt_digest(source, saltenv, opts)["digest"]
    if source_kind == "file":
        digest: str | None = index.get(_key(local_path(source)))
        return digest
    entry = index.get(web_key(source))
    return entry["digest"] if entry else None


def web_key(url: str) -> str:
    """Return a URL's key in the index: a hash, because the URL may contain secrets."""
    return f"web {hashlib.sha256(url.encode()).hexdigest()}"


def local_path(source: str) -> str:
    """Return the path of a ``file://`` URL or an absolute path."""
    return source.removeprefix("file://")


class Index:
    """Computed digests, by keys that identify the source in its present state."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def _read(self) -> dict[str, Any]:
        try:
            entries: dict[str, Any] = json.loads(self._path.read_text())
        except (FileNotFoundError, ValueError):
            # If a crash has cut the file off, all entries can be computed again.
            return {}
        return entries

    def get(self, key: str) -> Any:
        """Return the value of a key, or None."""
        return self._read().get(key)

    def put(self, key: str, value: object) -> None:
        """Set a value; replace the file atomically."""
        entries = {**self._read(), key: value}
        files.write(self._path, json.dumps(entries).encode())


def split_environment(source: str, saltenv: str) -> tuple[str, str]:
    """
    Return a ``salt://`` URL without its environment, and the environment.

    saltenv
        The environment if the URL names none (as in ``salt://x.qcow2?saltenv=prod``).
    """
    if "?env=" in source:
        # Salt would ignore ?env=, and fetch the file of another environment.
        raise BadArgument("image", f"{source!r}: write ?saltenv= instead of ?env=")
    url, named_env = salt.utils.url.split_env(source)
    return url, named_env or saltenv


def _salt_digest(source: str, saltenv: str, opts: Mapping[str, Any]) -> ContentInfo:
    url, saltenv = split_environment(source, saltenv)
    try:
        with salt.fileclient.get_file_client(opts) as client:
            file_hash, stat = client.hash_and_stat_file(url, saltenv)
    except SaltException as exc:
        raise ImageError(f"image {source} cannot be asked for: {exc}") from exc
    if not isinstance(file_hash, dict) or not file_hash.get("hsum"):
        raise ImageError(
            f"image {source} is not on the Salt file server (saltenv {saltenv}); "
            "see it with: salt-run fileserver.file_list"
        )
    if file_hash.get("hash_type") != "sha256":
        raise ImageError(
            f"image {source}: the file server hashes with {file_hash.get('hash_type')}; "
            "set 'hash_type: sha256' on master and minion"
        )
    size = stat[6] if isinstance(stat, list | tuple) and len(stat) > 6 else None
    return {"digest": file_hash["hsum"], "size_bytes": size}


def _stat(path: str) -> os.stat_result:
    try:
        stat = os.stat(path)
    except OSError as exc:
        raise ImageError(f"image {path} cannot be read on this host: {exc.strerror}") from exc
    if not os.path.isfile(path):
        raise ImageError(f"image {path} is not a regular file")
    return stat


def _key(path: str) -> str:
    stat = _stat(path)
    return f"{path} {stat.st_dev} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns}"


def local_digest(path: str, index: Index) -> str:
    """Return the digest of a file of this host; read it again only if it has changed."""
    key = _key(path)
    indexed_digest: str | None = index.get(key)
    if indexed_digest is not None:
        return indexed_digest
    digest = file_digest(path)
    index.put(key, digest)
    return digest


def file_digest(path: str | Path, kind: str = "sha256") -> str:
    """Return the digest of a file as hexadecimal text."""
    digest = hashlib.new(kind)
    with open(path, "rb") as handle:
        while chunk := handle.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def _report_growth(path: Path, total: int | None, progress: Callable[..., None]) -> Iterator[None]:
    """Report the growth of a file while the block writes it."""
    is_done = threading.Event()

    def watch() -> None:
        while not is_done.wait(0.3):
            if os.path.exists(path):
                progress(os.path.getsize(path), total)

    # Salt's functions find their loader through context variables, which threads do not inherit.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(watch,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


@contextmanager
def _enforce_limit(client: Any, part: Path, meter: writelimit.Meter) -> Iterator[None]:
    """Check the limit before each request for data by Salt's own loop, which has no limit."""
    send, limit_errors = client._channel_send, []

    def counted(*args: Any, **kwargs: Any) -> Any:
        try:
            meter.check(os.path.getsize(part) if os.path.exists(part) else 0)
        except writelimit.OverLimit as exc:
            limit_errors.append(exc)
            # Pretend the end of the file: only then does Salt close its output.
            return {"data": b""}
        return send(*args, **kwargs)

    client._channel_send = counted
    yield
    if limit_errors:
        raise limit_errors[0]


def fetch_salt(
    source: str,
    saltenv: str,
    opts: Mapping[str, Any],
    part: Path,
    total: int | None,
    progress: Callable[..., None],
    meter: writelimit.Meter,
) -> None:
    """Fetch a file of the Salt file server into ``part``."""
    meter.expect(total or 0)
    url, saltenv = split_environment(source, saltenv)
    # Salt keeps the mode of an existing file.
    part.touch(mode=0o600)
    try:
        with (
            _report_growth(part, total, progress),
            salt.fileclient.get_file_client(opts) as client,
            _enforce_limit(client, part, meter),
        ):
            fetched_path = client.get_file(url, dest=str(part), saltenv=saltenv)
    except writelimit.OverLimit:
        raise
    except SaltException as exc:
        raise ImageError(f"image {source} cannot be fetched: {exc}") from exc
    if not fetched_path:
        raise ImageError(f"image {source} cannot be fetched from the Salt file server")
