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
from saltvirt.arguments import shown
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
    known: Mapping[str, Any] | None,
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
    for left in reversed(range(_TRIES)):
        before = _size(part)
        try:
            version = _once(url, part, meter.counting(progress), known, meter)
        except _Broken as exc:
            if left and _size(part) > before and meter.left_s > 0:
                continue
            if _begun(part) is None:
                forget(part)
            raise ImageError(
                f"image {shown(url)} was cut off: {exc}; try again: what arrived is kept if "
                "the server can go on from there"
            ) from exc
        forget(part, keep_content=True)
        return version
    raise AssertionError("the last try returns or raises")


def fetch_small(url: str, most_bytes: int, meter: Meter) -> bytes:
    """Return what a small file has in it; raise ImageError, which says nothing but why not."""
    try:
        with connection.opened(_request(url, connection.WHO), meter) as answer:
            data: bytes = answer.read(most_bytes + 1)
            if len(data) <= most_bytes and answer.length:
                raise ImageError(f"it was cut off after {len(data)} bytes; try again")
    except urllib.error.HTTPError as exc:
        exc.close()
        raise ImageError(_status(exc)) from exc
    except _FAILURES as exc:
        why = f"it does not arrive {meter.late}" if meter.left_s <= 0 else _reason(exc)
        raise ImageError(why) from exc
    if len(data) > most_bytes:
        raise ImageError(f"it has more than {human(most_bytes)}")
    return data


def forget(part: Path, *, keep_content: bool = False) -> None:
    """Remove what an earlier call left."""
    _note(part).unlink(missing_ok=True)
    if not keep_content:
        Path(part).unlink(missing_ok=True)


def _note(part: Path) -> Path:
    return Path(f"{part}.version")


def _size(part: Path) -> int:
    return Path(part).stat().st_size if Path(part).exists() else 0


def _begun(part: Path) -> dict[str, Any] | None:
    """Return the version whose beginning lies in ``part``, None if there is nothing to go on."""
    try:
        version = json.loads(_note(part).read_text()) if _size(part) else None
    except (FileNotFoundError, ValueError):
        return None
    # If a host died before it was on the disk, the length may be there and the bytes not.
    return version if version and version.get("boot") == files.boot() else None


def _once(
    url: str,
    part: Path,
    progress: Callable[[int, int], None],
    known: Mapping[str, Any] | None,
    meter: Meter,
) -> dict[str, Any] | None:
    request = _request(url, _headers(part, known))
    try:
        with connection.opened(request, meter) as answer:
            return _receive(url, answer, part, progress, meter)
    except urllib.error.HTTPError as exc:
        exc.close()
        # Of one who was not told of any version it says nothing, whatever has arrived before.
        if exc.code == 304 and known:
            return None
        if exc.code == 416:
            forget(part)
            raise ImageError(f"image {shown(url)} changed while it was fetched; try again") from exc
        raise ImageError(f"image {shown(url)} cannot be fetched: {_status(exc)}") from exc
    except _FAILURES as exc:
        if meter.left_s <= 0:
            raise _Broken(f"{_size(part)} bytes {meter.late}") from exc
        if _size(part):
            raise _Broken(_reason(exc)) from exc
        raise ImageError(f"image {shown(url)} cannot be fetched: {_reason(exc)}") from exc


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
        found = urllib.parse.urlsplit(url)
        user, at, host = found.netloc.rpartition("@")
        plain = encoded(found._replace(netloc=host))
        request = urllib.request.Request(plain, headers=dict(headers))
    except ValueError as exc:
        raise ImageError(f"image {shown(url)} cannot be fetched: it is not a URL") from exc
    if at:
        name, _colon, password = user.partition(":")
        pair = f"{urllib.parse.unquote(name)}:{urllib.parse.unquote(password)}"
        basic = base64.b64encode(pair.encode()).decode()
        # Not sent on to where the server may lead.
        request.add_unredirected_header("Authorization", f"Basic {basic}")
    return request


def encoded(url: urllib.parse.SplitResult) -> str:
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


def _headers(part: Path, known: Mapping[str, Any] | None) -> dict[str, str]:
    headers = dict(connection.WHO)
    begun = _begun(part)
    if begun:
        headers |= {"Range": f"bytes={_size(part)}-", "If-Range": begun["etag"]}
    for key, header in (("etag", "If-None-Match"), ("modified", "If-Modified-Since")):
        if known and known.get(key):
            headers[header] = known[key]
    return headers


def _receive(
    url: str, answer: Any, part: Path, progress: Callable[[int, int], None], meter: Meter
) -> dict[str, Any]:
    done, total = _extent(url, answer, part)
    version = {key: answer.headers.get(header) for key, header in _VALIDATORS}
    # Without a strong validator nobody can say that the rest belongs to this beginning.
    if (version["etag"] or "").startswith('"'):
        files.write(_note(part), json.dumps({**version, "boot": files.boot()}).encode())
    else:
        forget(part)
    with open(part, "ab" if done else "wb", opener=files.private) as handle:
        progress(done, total)
        # What is there is taken as it comes: to wait for a whole chunk is to have no limit of time.
        while chunk := answer.read1(_CHUNK):
            if meter.left_s <= 0:
                raise _Broken(f"{done} bytes {meter.late}")
            handle.write(chunk)
            done += len(chunk)
            progress(done, total)
    if total and done != total:
        raise _Broken(f"{done} of {total} bytes arrived")
    return version


def _extent(url: str, answer: Any, part: Path) -> tuple[int, int]:
    """Return where the answer begins and how long the whole is, in bytes; 0 if not known."""
    if answer.status != 206:
        return 0, answer.length or 0
    said = answer.headers.get("Content-Range", "")
    found = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]+/([0-9]{1,18})", said.strip())
    if not found or int(found[1]) != _size(part):
        forget(part)
        raise ImageError(
            f"image {shown(url)}: the server sent another part than was asked for "
            f"({terminal.one_line(said)})"
        )
    return int(found[1]), int(found[2])
