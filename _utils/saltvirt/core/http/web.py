"""Fetch an image from a web server; go on after a break where it stopped."""

import base64
import http.client
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from saltvirt.core import files, terminal
from saltvirt.core.arguments import hide_credentials
from saltvirt.core.errors import ImageError
from saltvirt.core.http import connection
from saltvirt.core.units import human
from saltvirt.core.writelimit import Meter

_CHUNK = 1 << 20
_TRIES = 5
# Without control characters: a URL with one is invalid.
_NOT_ASCII = re.compile(r"[^\x00-\x1f\x21-\x7f]+")
_VALIDATORS = (("etag", "ETag"), ("modified", "Last-Modified"))
_FAILURES = (urllib.error.URLError, TimeoutError, ConnectionError, http.client.HTTPException)


class _Broken(Exception):
    """The connection ended in the middle; the message says where."""


def fetch(
    url: str,
    part: Path,
    progress: Callable[[int, int], None],
    known_version: Mapping[str, Any] | None,
    meter: Meter,
) -> dict[str, Any] | None:
    """
    Fetch a URL into ``part``; return what identifies its version.

    part
        May hold the beginning of the same version from an earlier call; then only the rest is
        requested.
    known_version
        The result of an earlier call; if the server reports no change, nothing is written, and None
        is returned.
    meter
        Stops a fetch that takes too much room. A fetch out of time counts as broken off.

    Source: RFC 9110, sections 13 and 14 (If-Range, Content-Range).
    """
    for tries_left in reversed(range(_TRIES)):
        size_before = _size(part)
        try:
            version = _fetch_once(url, part, meter.counting(progress), known_version, meter)
        except _Broken as exc:
            if tries_left and _size(part) > size_before and meter.left_s > 0:
                continue
            if _read_partial_version(part) is None:
                forget_part(part)
            raise ImageError(
                f"image {hide_credentials(url)} was cut off: {exc}; try again: what arrived is "
                "kept if "
                "the server can go on from there"
            ) from exc
        forget_part(part, keep_content=True)
        return version
    raise AssertionError("the last try returns or raises")


def fetch_small(url: str, most_bytes: int, meter: Meter) -> bytes:
    """Return the content of a small file; raise ImageError with the reason alone."""
    try:
        with connection.open_url(_request(url, connection.WHO), meter) as answer:
            data: bytes = answer.read(most_bytes + 1)
            if len(data) <= most_bytes and answer.length:
                raise ImageError(f"it was cut off after {len(data)} bytes; try again")
    except urllib.error.HTTPError as exc:
        exc.close()
        raise ImageError(_status(exc)) from exc
    except _FAILURES as exc:
        reason = f"it does not arrive {meter.late}" if meter.left_s <= 0 else _reason(exc)
        raise ImageError(reason) from exc
    if len(data) > most_bytes:
        raise ImageError(f"it has more than {human(most_bytes)}")
    return data


def forget_part(part: Path, *, keep_content: bool = False) -> None:
    """Remove the part that an earlier call left."""
    _note(part).unlink(missing_ok=True)
    if not keep_content:
        Path(part).unlink(missing_ok=True)


def _note(part: Path) -> Path:
    return Path(f"{part}.version")


def _size(part: Path) -> int:
    return Path(part).stat().st_size if Path(part).exists() else 0


def _read_partial_version(part: Path) -> dict[str, Any] | None:
    """Return the version of the beginning in ``part``, None if the fetch cannot go on there."""
    try:
        version = json.loads(_note(part).read_text()) if _size(part) else None
    except (FileNotFoundError, ValueError):
        return None
    # After a crash of the host the length may be on the disk without the bytes.
    return version if version and version.get("boot") == files.read_boot_id() else None


def _fetch_once(
    url: str,
    part: Path,
    progress: Callable[[int, int], None],
    known_version: Mapping[str, Any] | None,
    meter: Meter,
) -> dict[str, Any] | None:
    request = _request(url, _headers(part, known_version))
    try:
        with connection.open_url(request, meter) as answer:
            return _receive(url, answer, part, progress, meter)
    except urllib.error.HTTPError as exc:
        exc.close()
        # Without a known version the request had no such condition: 304 is then an error.
        if exc.code == 304 and known_version:
            return None
        if exc.code == 416:
            forget_part(part)
            raise ImageError(
                f"image {hide_credentials(url)} changed while it was fetched; try again"
            ) from exc
        raise ImageError(
            f"image {hide_credentials(url)} cannot be fetched: {_status(exc)}"
        ) from exc
    except _FAILURES as exc:
        if meter.left_s <= 0:
            raise _Broken(f"{_size(part)} bytes {meter.late}") from exc
        if _size(part):
            raise _Broken(_reason(exc)) from exc
        raise ImageError(
            f"image {hide_credentials(url)} cannot be fetched: {_reason(exc)}"
        ) from exc


def _reason(exc: Exception) -> str:
    # http.client's message has the whole URL, with its credentials.
    is_url = isinstance(exc, http.client.InvalidURL)
    return "it is not a URL" if is_url else terminal.one_line(str(getattr(exc, "reason", exc)))


def _status(exc: urllib.error.HTTPError) -> str:
    # The server chooses these words, which a terminal shows.
    return terminal.one_line(f"HTTP {exc.code} {exc.reason}")


def _request(url: str, headers: Mapping[str, str]) -> urllib.request.Request:
    """Return a request to a server; the URL's credentials are for that server alone."""
    try:
        parts = urllib.parse.urlsplit(url)
        user, at, host = parts.netloc.rpartition("@")
        plain_url = encode_url(parts._replace(netloc=host))
        request = urllib.request.Request(plain_url, headers=dict(headers))
    except ValueError as exc:
        raise ImageError(
            f"image {hide_credentials(url)} cannot be fetched: it is not a URL"
        ) from exc
    if at:
        name, _colon, password = user.partition(":")
        pair = f"{urllib.parse.unquote(name)}:{urllib.parse.unquote(password)}"
        basic = base64.b64encode(pair.encode()).decode()
        # Not sent to where the server redirects.
        request.add_unredirected_header("Authorization", f"Basic {basic}")
    return request


def encode_url(url: urllib.parse.SplitResult) -> str:
    """
    Return a URL as a request has it, with spaces and non-ASCII characters percent-encoded.

    The server's name is encoded as in the domain name system. Raises ValueError if that fails.
    """
    host, colon, port = url.netloc.rpartition(":")
    if not colon or not port.isdecimal():
        host, colon, port = url.netloc, "", ""
    name = host if host.isascii() else host.encode("idna").decode()
    text = url._replace(netloc=f"{name}{colon}{port}").geturl()
    return _NOT_ASCII.sub(lambda part: urllib.parse.quote(part[0]), text)


def _headers(part: Path, known_version: Mapping[str, Any] | None) -> dict[str, str]:
    headers = dict(connection.WHO)
    partial_version = _read_partial_version(part)
    if partial_version:
        headers |= {"Range": f"bytes={_size(part)}-", "If-Range": partial_version["etag"]}
    for key, header in (("etag", "If-None-Match"), ("modified", "If-Modified-Since")):
        if known_version and known_version.get(key):
            headers[header] = known_version[key]
    return headers


def _receive(
    url: str, answer: Any, part: Path, progress: Callable[[int, int], None], meter: Meter
) -> dict[str, Any]:
    done_bytes, total_bytes = _extent(url, answer, part)
    version = {key: answer.headers.get(header) for key, header in _VALIDATORS}
    # Without a strong validator there is no proof that the rest belongs to this beginning.
    if (version["etag"] or "").startswith('"'):
        files.write(_note(part), json.dumps({**version, "boot": files.read_boot_id()}).encode())
    else:
        forget_part(part)
    with open(part, "ab" if done_bytes else "wb", opener=files.private) as handle:
        progress(done_bytes, total_bytes)
        # Read what has come: waiting for a whole chunk would evade the time limit.
        while chunk := answer.read1(_CHUNK):
            if meter.left_s <= 0:
                raise _Broken(f"{done_bytes} bytes {meter.late}")
            handle.write(chunk)
            done_bytes += len(chunk)
            progress(done_bytes, total_bytes)
    if total_bytes and done_bytes != total_bytes:
        raise _Broken(f"{done_bytes} of {total_bytes} bytes arrived")
    return version


def _extent(url: str, answer: Any, part: Path) -> tuple[int, int]:
    """Return the offset of the answer and the length of the whole, in bytes; 0 if unknown."""
    if answer.status != 206:
        return 0, answer.length or 0
    content_range = answer.headers.get("Content-Range", "")
    match = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]+/([0-9]{1,18})", content_range.strip())
    if not match or int(match[1]) != _size(part):
        forget_part(part)
        raise ImageError(
            f"image {hide_credentials(url)}: the server sent another part than was asked for "
            f"({terminal.one_line(content_range)})"
        )
    return int(match[1]), int(match[2])
