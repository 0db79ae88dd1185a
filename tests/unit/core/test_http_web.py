"""Images of the web are fetched once per version, and continue after an interruption."""

import datetime
import http.server
import ipaddress
import os
import ssl
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from fetching import obtain, served
from saltvirt.core import files, writelimit
from saltvirt.core.errors import ImageError
from saltvirt.core.http import web as saltvirt_web
from saltvirt.core.units import MIB
from saltvirt.core.writelimit import Meter
from saltvirt.storage.images import cache, removal, validation


@pytest.fixture
def image(tmp_path):
    """A good qcow2 image."""
    path = tmp_path / "good.qcow2"
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", path, "1M"]
    subprocess.run(argv, check=True)
    return path


@pytest.fixture
def raw_disk(tmp_path):
    """A raw disk: a boot sector and zeros."""
    path = tmp_path / "disk.raw"
    path.write_bytes((bytes(510) + b"\x55\xaa").ljust(8 * MIB, b"\0"))
    return path


@pytest.fixture
def web(tmp_path):
    """A web server on loopback for a folder: its address, and the status codes it has sent."""
    status_codes = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, directory=str(tmp_path), **kwargs)

        def log_request(self, code="-", size="-"):
            status_codes.append(int(code))

        def log_message(self, *_args):
            pass

    with served(Handler) as address:
        yield address, status_codes


class RedirectingHandler(http.server.BaseHTTPRequestHandler):
    """A server that redirects to a URL."""

    to, code = "", 302

    def do_GET(self):
        self.send_response(self.code)
        self.send_header("Location", self.to)
        self.end_headers()

    def log_message(self, *_args):
        pass


@pytest.fixture
def redirecting_server():
    """Serve with :class:`RedirectingHandler`; yield the address and the handler to be changed."""
    handler = type("Handler", (RedirectingHandler,), {})
    with served(handler) as address:
        yield address, handler


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("to", ["ftp://127.0.0.1:9/x", "file://{}", "data:,x", "FTP://x/", "//[x"])
def test_a_redirect_to_another_scheme_is_not_followed(redirecting_server, host, image, code, to):
    url, handler = redirecting_server
    handler.to, handler.code = to.format(image), code
    scheme = to.partition(":")[0].lower() if to[0] != "/" else "what is not a URL"

    with pytest.raises(ImageError, match=f"leads to {scheme}, and only http and https are"):
        obtain(host, f"{url}/x.qcow2")
    with pytest.raises(ImageError, match=f"leads to {scheme}, and only http and https are"):
        saltvirt_web.fetch_small(
            f"{url}/x", 100, Meter(writelimit.from_settings(host), "x", host.images)
        )


def test_a_redirect_to_another_web_server_is_followed(redirecting_server, web, host, image):
    url, handler = redirecting_server
    plain_address, status_codes = web
    for handler.to in (
        f"{plain_address}/{image.name}",
        f"//{plain_address.removeprefix('http://')}/{image.name}",
    ):
        content = saltvirt_web.fetch_small(
            f"{url}/x", MIB, Meter(writelimit.from_settings(host), "x", host.images)
        )
        assert content == image.read_bytes()
    assert status_codes == [200, 200]


def test_a_redirect_to_addresses_that_only_this_host_reaches_is_refused(redirecting_server, host):
    """Its images go into guests, so a redirect could give them data of the host's services."""
    url, handler = redirecting_server
    requested_paths = []

    class Own(RedirectingHandler):
        def do_GET(self):
            requested_paths.append(self.path)

    with served(Own, at="127.0.0.2") as own_address:
        handler.to = f"{own_address}/secret"
        with pytest.raises(ImageError, match="the server leads to 127.0.0.2, which only this host"):
            obtain(host, f"{url}/x.qcow2", validate=validation.accept_any)
        with pytest.raises(ImageError, match="the server leads to 127.0.0.2, which only this host"):
            saltvirt_web.fetch_small(
                f"{url}/x", 100, Meter(writelimit.from_settings(host), "x", host.images)
            )

    assert requested_paths == []


def test_a_proxy_on_this_host_gets_redirected_requests_too(redirecting_server, host, monkeypatch):
    url, handler = redirecting_server
    requested_paths = []

    class Proxy(RedirectingHandler):
        def do_GET(self):
            requested_paths.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"image")

    handler.to = "http://images.example.org/x"
    with served(Proxy, at="127.0.0.2") as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        content = saltvirt_web.fetch_small(
            f"{url}/x", 100, Meter(writelimit.from_settings(host), "x", host.images)
        )

    assert content == b"image" and requested_paths == ["http://images.example.org/x"]


@pytest.mark.parametrize("scheme", ["file", "ftp", "data"])
def test_only_urls_of_the_web_are_opened(host, image, scheme):
    url = {"file": f"file://{image}", "ftp": "ftp://127.0.0.1:9/x", "data": "data:,x"}[scheme]

    with pytest.raises(ImageError, match=f"unknown url type: {scheme}"):
        saltvirt_web.fetch_small(url, 100, Meter(writelimit.from_settings(host), "x", host.images))


@pytest.fixture
def tls_server(tmp_path, monkeypatch):
    """A web server with TLS that Python trusts, and that redirects to a URL."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - day, now + day)
    cert = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    pem = tmp_path / "server.pem"
    pem.write_bytes(
        cert.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)

    handler = type("Handler", (RedirectingHandler,), {})
    with served(handler, context) as address:
        yield address.replace("http:", "https:"), handler


def test_a_tls_server_may_not_redirect_to_a_plain_one(web, tls_server, host, image):
    plain_address, status_codes = web
    url, handler = tls_server
    handler.to = f"{plain_address}/{image.name}"

    with pytest.raises(ImageError, match="leads to http://127.0.0.1, where nobody vouches"):
        obtain(host, f"{url}/x.qcow2")
    with pytest.raises(ImageError, match="leads to http://127.0.0.1, where nobody vouches"):
        saltvirt_web.fetch_small(
            f"{url}/x", 100, Meter(writelimit.from_settings(host), "x", host.images)
        )
    assert status_codes == []


def test_an_image_of_the_web_is_fetched_once_per_version(web, host, image):
    url, status_codes = web
    progress = []

    first_image = obtain(host, f"{url}/{image.name}", progress)
    second_image = obtain(host, f"{url}/{image.name}")

    assert first_image == second_image
    assert status_codes == [200, 304]
    assert progress[-1] == (image.stat().st_size,) * 2


class UnchangedHandler(http.server.BaseHTTPRequestHandler):
    """A server that answers 304 to all requests; it cuts off the first answer if ``cuts``."""

    cuts = False

    def do_GET(self):
        if self.cuts and "Range" not in self.headers:
            self.send_response(200)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", "4096")
            self.end_headers()
            self.wfile.write(b"#!/bin/sh\n")
        else:
            self.send_response(304)
            self.end_headers()

    def log_message(self, *_args):
        """Log nothing."""


@pytest.mark.parametrize("cuts", [False, True])
def test_an_answer_not_modified_does_not_complete_a_partial_download(host, cuts):
    """The beginning of a script would be run as a complete one."""
    with served(type("Handler", (UnchangedHandler,), {"cuts": cuts})) as url:
        for _time in range(2):
            with pytest.raises(ImageError, match=r"x.sh (cannot be fetched: HTTP 304|was cut off)"):
                obtain(host, f"{url}/x.sh", validate=validation.accept_any)


def test_an_image_missing_on_the_server_is_an_error(web, host):
    url, _status_codes = web

    with pytest.raises(ImageError, match=r"none.img cannot be fetched: HTTP 404"):
        obtain(host, f"{url}/none.img")
    with pytest.raises(ImageError, match="cannot be fetched"):
        obtain(host, "http://127.0.0.1:9/x.img")


class ShakyHandler(http.server.BaseHTTPRequestHandler):
    """A server that hangs up after so many bytes of each answer."""

    data, tag, most, ranges = b"", '"one"', 10, ()

    def do_GET(self):
        self.ranges.append(self.headers.get("Range"))
        begin = 0
        if self.headers.get("Range") and self.headers.get("If-Range") == self.tag:
            begin = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if begin else 200)
        if self.tag:
            self.send_header("ETag", self.tag)
        self.send_header("Content-Length", str(len(self.data) - begin))
        self.send_header("Content-Range", f"bytes {begin}-{len(self.data) - 1}/{len(self.data)}")
        self.end_headers()
        self.wfile.write(self.data[begin : begin + self.most])

    def log_message(self, *_args):
        pass


@pytest.fixture
def shaky():
    """Serve with :class:`ShakyHandler`; yield the address and the handler to be changed."""
    handler = type("Handler", (ShakyHandler,), {"ranges": []})
    with served(handler) as address:
        yield f"{address}/x.img", handler


def partials(host):
    """Return the partial downloads in the cache."""
    return sorted(p.name for p in cache.ensure_folder(host).glob("*.partial*"))


def test_an_interrupted_download_continues_at_its_offset(shaky, host, raw_disk):
    url, handler = shaky
    handler.data, handler.most = raw_disk.read_bytes(), 3 * MIB

    image_file = obtain(host, url)

    assert Path(image_file.path).read_bytes() == handler.data
    assert handler.ranges == [None, f"bytes={3 * MIB}-", f"bytes={6 * MIB}-"]
    assert partials(host) == []


def test_a_partial_download_is_kept_for_the_next_call(shaky, host, raw_disk):
    url, handler = shaky
    handler.data, handler.most = raw_disk.read_bytes(), MIB

    with pytest.raises(ImageError, match="cut off: 5242880 of 8388608 bytes .* try again"):
        obtain(host, url)
    assert len(partials(host)) == 2
    handler.most = 8 * MIB
    obtain(host, url)

    assert handler.ranges[-1] == f"bytes={5 * MIB}-"
    assert partials(host) == []


def test_a_partial_download_from_before_a_reboot_is_not_trusted(shaky, host, raw_disk, monkeypatch):
    # A fake: after a power cut a file may have its length, and only zeros in it.
    url, handler = shaky
    handler.data, handler.most = raw_disk.read_bytes(), MIB
    with pytest.raises(ImageError, match="cut off"):
        obtain(host, url)
    (part,) = cache.ensure_folder(host).glob("*.partial")
    part.write_bytes(bytes(part.stat().st_size))
    monkeypatch.setattr(files, "read_boot_id", lambda: "another")
    handler.most = 8 * MIB

    image_file = obtain(host, url)

    assert Path(image_file.path).read_bytes() == handler.data
    assert handler.ranges[-1] is None


def test_a_partial_download_of_an_older_version_is_discarded(shaky, host, raw_disk, image):
    url, handler = shaky
    handler.data, handler.most = raw_disk.read_bytes(), MIB
    with pytest.raises(ImageError, match="cut off"):
        obtain(host, url)
    handler.data, handler.tag, handler.most = image.read_bytes(), '"two"', 8 * MIB

    assert Path(obtain(host, url).path).read_bytes() == handler.data


@pytest.mark.parametrize("tag", [None, 'W/"weak"'])
def test_without_a_strong_tag_nothing_is_kept(shaky, host, tag):
    url, handler = shaky
    handler.data, handler.tag = bytes(1000), tag

    with pytest.raises(ImageError, match="cut off: 10 of 1000 bytes"):
        obtain(host, url)

    assert partials(host) == []
    assert set(handler.ranges) == {None}


def test_an_abandoned_download_is_removed_after_a_day(host, image):
    old, new = (cache.ensure_folder(host) / f"{name}.partial" for name in ("old", "new"))
    old.write_text("x")
    new.write_text("x")
    os.utime(old, (0, 0))

    removal.sweep(host)

    assert partials(host) == ["new.partial"]


class OddHandler(http.server.BaseHTTPRequestHandler):
    """A server with control characters and wrong numbers in its headers."""

    def do_GET(self):
        if "word" in self.path:
            self.send_response(404, "\x1b]0;x\x07gone\x1b[2J")
        elif self.headers.get("Range"):
            self.send_response(206, "OK")
            self.send_header("Content-Range", f"bytes 4-5/{'9' * 5000}")
        else:
            self.send_response(200, "OK")
            self.send_header("ETag", '"one"')
            self.send_header("Content-Length", "9")
        self.end_headers()
        self.wfile.write(b"1234")

    def log_message(self, *_args):
        pass


@pytest.mark.parametrize("name", ["word.img", "number.img"])
def test_odd_headers_of_a_server_are_escaped_and_ignored(host, name):
    with served(OddHandler) as address, pytest.raises(ImageError) as caught:
        obtain(host, f"{address}/{name}")

    assert str(caught.value).isprintable() and len(str(caught.value)) < 500
