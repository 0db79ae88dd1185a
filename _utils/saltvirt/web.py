"""Fetch an image from a web server; what arrived of it before a break is not fetched again."""

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

from saltvirt import connection, files, terminal
from saltvirt.arguments import hide_credentials
from saltvirt.errors import ImageError
from saltvirt.room import Meter
from saltvirt.units import human

_CHUNK = 1 << 20
_TRIES = 5
# No control characters: a URL that has one is none.
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
    Fetch a URL into ``part``; return what identifies this version of it.

    part
        May hold the beginning of the same version from an earlier call; only the rest is asked for.
    known
        What an earlier call returned; if the server says that nothing changed, None is
        returned and nothing is written.
    meter
        Ends it when it takes too much room. When its time is over, it counts as broken off.

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
    """Return what a small file has in it; raise ImageError, which says nothing but why not."""
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
    """Remove what an earlier call left."""
    _note(part).unlink(missing_ok=True)
    if not keep_content:
        Path(part).unlink(missing_ok=True)


def _note(part: Path) -> Path:
    return Path(f"{part}.version")


def _size(part: Path) -> int:
    return Path(part).stat().st_size if Path(part).exists() else 0


def _read_partial_version(part: Path) -> dict[str, Any] | None:
    """Return the version whose beginning lies in ``part``, None if there is nothing to go on."""
    try:
        version = json.loads(_note(part).read_text()) if _size(part) else None
    except (FileNotFoundError, ValueError):
        return None
    # If a host died before it was on the disk, the length may be there and the bytes not.
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
        # Of one who was not told of any version it says nothing, whatever has arrived before.
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
    # What http.client says of a URL has all of it.
    is_url = isinstance(exc, http.client.InvalidURL)
    return "it is not a URL" if is_url else terminal.one_line(str(getattr(exc, "reason", exc)))


def _status(exc: urllib.error.HTTPError) -> str:
    # Its words are the server's, and are shown on somebody's terminal.
    return terminal.one_line(f"HTTP {exc.code} {exc.reason}")


def _request(url: str, headers: Mapping[str, str]) -> urllib.request.Request:
    """Return what is asked of a server; the URL's credentials are for that server alone."""
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
        # Not sent on to where the server may lead.
        request.add_unredirected_header("Authorization", f"Basic {basic}")
    return request


def encode_url(url: urllib.parse.SplitResult) -> str:
    """
    Return a URL as a server is asked for it: what is not ASCII, and spaces, percent-encoded.

    The name of the server is encoded as in the domain name system. Raises ValueError if it cannot.
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
    # Without a strong validator nobody can say that the rest belongs to this beginning.
    if (version["etag"] or "").startswith('"'):
        files.write(_note(part), json.dumps({**version, "boot": files.read_boot_id()}).encode())
    else:
        forget_part(part)
    with open(part, "ab" if done_bytes else "wb", opener=files.private) as handle:
        progress(done_bytes, total_bytes)
        # What is there is taken as it comes: to wait for a whole chunk is to have no limit of time.
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
    """Return where the answer begins and how long the whole is, in bytes; 0 if not known."""
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
