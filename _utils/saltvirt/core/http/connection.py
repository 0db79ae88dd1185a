"""Connections to web servers and salt-apis that end when the time of a step is over."""

import functools
import http.client
import io
import ipaddress
import json
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

from saltvirt.core.writelimit import Meter

WHO = {"User-Agent": "salt-virt"}
_TIMEOUT_S = 30


class ServerUnreachable(OSError):
    """A server was not reached or not authenticated, so nothing was sent; see the cause."""


class Deadline:
    """The time limit of one request; :class:`saltvirt.core.writelimit.Meter` has an image's."""

    def __init__(self, limit_s: float) -> None:
        self._end = time.monotonic() + limit_s

    @property
    def left_s(self) -> float:
        """The seconds that are left."""
        return self._end - time.monotonic()


def post(
    url: str,
    data: Any,
    context: ssl.SSLContext,
    deadline: Deadline,
    *,
    connect_s: float,
    most_bytes: int,
) -> tuple[int, bytes]:
    """
    Send JSON to an authenticated server, and return the status and body of its response.

    connect_s
        The time until the server is authenticated; ``deadline`` is for the whole request.
    most_bytes
        The limit of the body; at most one byte more is read.

    No proxy is used, and no redirect is followed. Raises :class:`ServerUnreachable`, another
    OSError (TimeoutError among them), or http.client.HTTPException.
    """
    parts = urllib.parse.urlsplit(url)
    options: dict[str, Any] = {"context": context, "port": parts.port}
    server = _connection(http.client.HTTPSConnection, deadline, str(parts.hostname), **options)
    server.timeout = min(connect_s, _wait_s(deadline))
    try:
        try:
            server.connect()
        except OSError as exc:
            raise ServerUnreachable(str(exc)) from exc
        server.sock.settimeout(_wait_s(deadline))
        headers = {"Content-Type": "application/json", "Accept": "application/json", **WHO}
        server.request("POST", parts.path or "/", json.dumps(data).encode(), headers)
        answer = server.getresponse()
        return int(answer.status), answer.read(most_bytes + 1)
    finally:
        server.close()


def open_url(request: urllib.request.Request, meter: Meter) -> Any:
    """
    Return the response to a request, also after redirects.

    Every wait raises TimeoutError when the server sends nothing, or when the meter's time is over:
    a server may send a header now and then for ever. All but http and https is refused, and so is a
    redirect to what only this host reaches: its own addresses and its cloud's metadata.
    """
    opener, way = urllib.request.OpenerDirector(), _Connector()
    # Not Python's default handlers, which also open FTP, local files and data: URLs.
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        _Http(meter, way),
        _Https(meter, way),
        urllib.request.HTTPDefaultErrorHandler(),
        _RedirectPolicy(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener.open(request, timeout=_wait_s(meter))


def _wait_s(meter: Meter | Deadline) -> float:
    """Return how long the server may be silent now; raise TimeoutError when the time is over."""
    if meter.left_s <= 0:
        raise TimeoutError("timed out")
    return min(_TIMEOUT_S, meter.left_s)


class _RedirectPolicy(urllib.request.HTTPRedirectHandler):
    """Follow redirects within http and https alone, and never from https to http."""

    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> Any:
        """Refuse a redirect to another scheme; Python would follow to FTP."""
        location = headers.get("location") or headers.get("uri") or ""
        try:
            scheme = urllib.parse.urlsplit(urllib.parse.urljoin(req.full_url, location)).scheme
        except ValueError:
            scheme = "what is not a URL"
        if scheme not in ("http", "https"):
            fp.close()
            raise urllib.error.URLError(
                f"the server leads to {scheme[:20]}, and only http and https are followed; give "
                "the URL of the file itself"
            )
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        place = urllib.parse.urlsplit(newurl)
        if req.type == "https" and place.scheme != "https":
            fp.close()
            raise urllib.error.URLError(
                f"the server leads to {place.scheme}://{place.hostname}, where nobody vouches for "
                "what comes; give a URL that stays with https"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Connector:
    """
    The sockets of one request and of its redirects.

    The response becomes a file of the cache, and of a guest. So no redirect may lead to what only
    this host reaches: services on its own addresses, and its cloud's metadata. The operator's own
    URL may name this host itself.
    """

    def __init__(self) -> None:
        self._first: str | None = None

    def to(self, req: urllib.request.Request) -> Callable[..., socket.socket]:
        """Return the function that connects to the next server, or to the request's proxy."""
        is_first = self._first is None
        self._first = self._first or ""
        if req.has_proxy() or getattr(req, "_tunnel_host", None):
            if not is_first:
                self._refuse_literal(urllib.parse.urlsplit(req.full_url).hostname or "")
            return socket.create_connection
        return self._connect_first if is_first else self._connect_next

    def _connect_first(self, address: tuple[str, int], *args: Any, **options: Any) -> Any:
        sock = socket.create_connection(address, *args, **options)
        peer = _peer(sock)
        if _is_metadata(peer) and not _is_literal(address[0]):
            sock.close()
            raise _redirect_error(peer)
        self._first = peer
        return sock

    def _connect_next(self, address: tuple[str, int], *args: Any, **options: Any) -> Any:
        """Connect to an address that was checked: a second lookup may give another one."""
        host, port = address
        first_error: OSError | None = None
        for peer in _resolve(host, port):
            try:
                self._refuse(peer)
                sock = socket.create_connection((peer, port), *args, **options)
            except OSError as exc:
                first_error = first_error or exc
                continue
            # A rule of this host's firewall, for example, may have redirected the connection.
            try:
                self._refuse(_peer(sock))
            except OSError:
                sock.close()
                raise
            return sock
        raise first_error or OSError("the server leads to a name without an address")

    def _refuse(self, peer: str) -> None:
        if peer != self._first and _is_own(peer):
            raise _redirect_error(peer)

    def _refuse_literal(self, host: str) -> None:
        """Refuse a request to a proxy for an own address; a name is the proxy's to look up."""
        if _is_literal(host) and _is_own(host):
            raise _redirect_error(host)


def _redirect_error(peer: str) -> OSError:
    return OSError(
        f"the server leads to {peer}, which only this host reaches; give the URL of the file itself"
    )


def _peer(sock: socket.socket) -> str:
    return _plain(str(sock.getpeername()[0]))


def _plain(peer: str) -> str:
    peer = peer.partition("%")[0]
    # A name such as localhost may be either, depending on the address of its server.
    return "127.0.0.1" if peer in ("::1", "::ffff:127.0.0.1") else peer


def _resolve(host: str, port: int) -> list[str]:
    records = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(_plain(str(address[0])) for *_kind, address in records))


def _is_literal(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host.strip("[]").partition("%")[0]))
    except ValueError:
        return False


# Where clouds serve a machine its secrets or its own data: most of them; Alibaba, Azure, Oracle's
# classic one; Amazon, Google, Linode, Oracle, Scaleway.
METADATA = (
    "169.254.169.254/32",
    *("100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"),
    *("fd00:ec2::/32", "fd20:ce::254/128", "fd00:a9fe:a9fe::/48"),
    *("fd00:c1::a9fe:a9fe/128", "fd00:42::42/128"),
)
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_METADATA = tuple(map(ipaddress.ip_network, METADATA))
# Networks with an IPv4 address in their last 32 bits: NAT64, and the former compatible ones.
_EMBEDDING = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")))
_NOWHERE = ipaddress.ip_network("0.0.0.0/8")


def _is_own(text: str) -> bool:
    """Return whether an address leads to this host, to its links, or to its cloud's metadata."""
    address = ipaddress.ip_address(text.partition("%")[0])
    is_own = any(
        _is_on_link(candidate) or _is_local(candidate) for candidate in _embedded_addresses(address)
    )
    return is_own or _is_metadata(text)


def _is_metadata(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    return any(candidate in net for candidate in _embedded_addresses(address) for net in _METADATA)


def _is_on_link(address: _Address) -> bool:
    # The address zero means the loopback, too.
    return address.is_loopback or address.is_link_local or not int(address) or address in _NOWHERE


def _embedded_addresses(address: _Address) -> Iterator[_Address]:
    """Yield an address and the IPv4 addresses in it: mapped, NAT64, 6to4, Teredo."""
    yield address
    if isinstance(address, ipaddress.IPv4Address):
        return
    embedded = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in net for net in _EMBEDDING) and int(address) > 1:
        embedded.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    yield from (inner for inner in embedded if inner is not None)


def _is_local(address: _Address) -> bool:
    """Return whether an address is this host's: then it is also the kernel's source address."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        # Nothing is sent: connecting a UDP socket only asks the kernel for the route.
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return bool(ipaddress.ip_address(probe.getsockname()[0]) == address)
    except OSError:
        return False


class _Http(urllib.request.HTTPHandler):
    def __init__(self, meter: Meter, way: _Connector) -> None:
        super().__init__()
        self._make: Any = functools.partial(_connection, http.client.HTTPConnection, meter)
        self._way = way

    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(functools.partial(self._make, connect=self._way.to(req)), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, meter: Meter, way: _Connector) -> None:
        super().__init__()
        self._make: Any = functools.partial(_connection, http.client.HTTPSConnection, meter)
        self._way = way

    def https_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(functools.partial(self._make, connect=self._way.to(req)), req)


def _connection(
    kind: Any,
    meter: Meter | Deadline,
    host: str,
    *,
    connect: Callable[..., socket.socket] = socket.create_connection,
    **options: Any,
) -> Any:
    http_connection = kind(host, **{**options, "timeout": _wait_s(meter)})
    http_connection._create_connection = connect
    http_connection.response_class = functools.partial(_Answer, meter=meter)
    return http_connection


class _Answer(http.client.HTTPResponse):
    """A response with a time limit for every byte, also of its headers."""

    def __init__(
        self, sock: socket.socket, *args: Any, meter: Meter | Deadline, **options: Any
    ) -> None:
        super().__init__(sock, *args, **options)
        reader: Any = self.fp  # nothing was read yet
        self.fp = io.BufferedReader(_TimedReader(reader.detach(), sock, meter))


class _TimedReader(io.RawIOBase):
    """The bytes of a socket, as long as there is time."""

    def __init__(self, raw_io: Any, sock: socket.socket, meter: Meter | Deadline) -> None:
        super().__init__()
        self._plain, self._socket, self._meter = raw_io, sock, meter

    def readable(self) -> bool:
        """Return True: the stream can be read."""
        return True

    def readinto(self, buffer: Any) -> Any:
        """Wait for the next bytes."""
        self._socket.settimeout(_wait_s(self._meter))
        return self._plain.readinto(buffer)

    def close(self) -> None:
        """Close the socket, if no other handle has it."""
        self._plain.close()
        super().close()
