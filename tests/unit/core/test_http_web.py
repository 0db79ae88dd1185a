"""Images of the web: fetched once per version, and from where a break left them."""

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
    """A web server on loopback: its folder, its address and what it was asked."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, directory=str(tmp_path), **kwargs)

        def log_request(self, code="-", size="-"):
            asked.append(int(code))

        def log_message(self, *_args):
            pass

    with served(Handler) as address:
        yield address, asked


class Leading(http.server.BaseHTTPRequestHandler):
    """A server that leads to wherever it is told."""

    to, code = "", 302

    def do_GET(self):
        self.send_response(self.code)
        self.send_header("Location", self.to)
        self.end_headers()

    def log_message(self, *_args):
        pass


@pytest.fixture
def leading():
    """Serve with :class:`Leading`; yield the address and the handler to be changed."""
    handler = type("Handler", (Leading,), {})
    with served(handler) as address:
        yield address, handler


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("to", ["ftp://127.0.0.1:9/x", "file://{}", "data:,x", "FTP://x/", "//[x"])
def test_a_server_that_leads_out_of_the_web_is_not_followed(leading, host, image, code, to):
    url, handler = leading
    handler.to, handler.code = to.format(image), code
    scheme = to.partition(":")[0].lower() if to[0] != "/" else "what is not a URL"

    with pytest.raises(ImageError, match=f"leads to {scheme}, and only http and https are"):
        obtain(host, f"{url}/x.qcow2")
    with pytest.raises(ImageError, match=f"leads to {scheme}, and only http and https are"):
        saltvirt_web.fetch_small(
            f"{url}/x", 100, Meter(writelimit.from_settings(host), "x", host.images)
        )


def test_a_server_that_leads_on_within_the_web_is_followed(leading, web, host, image):
    url, handler = leading
    plain, asked = web
    for handler.to in (f"{plain}/{image.name}", f"//{plain.removeprefix('http://')}/{image.name}"):
        got = saltvirt_web.fetch_small(
            f"{url}/x", MIB, Meter(writelimit.from_settings(host), "x", host.images)
        )
        assert got == image.read_bytes()
    assert asked == [200, 200]


def test_a_server_leads_nobody_to_what_this_host_alone_reaches(leading, host):
    """What it serves goes into guests: it could have them be given what listens on the host."""
    url, handler = leading
    asked = []

    class Own(Leading):
        def do_GET(self):
            asked.append(self.path)

    with served(Own, at="127.0.0.2") as own:
        handler.to = f"{own}/secret"
        with pytest.raises(ImageError, match="the server leads to 127.0.0.2, which only this host"):
            obtain(host, f"{url}/x.qcow2", validate=validation.accept_any)
        with pytest.raises(ImageError, match="the server leads to 127.0.0.2, which only this host"):
            saltvirt_web.fetch_small(
                f"{url}/x", 100, Meter(writelimit.from_settings(host), "x", host.images)
            )

    assert asked == []


def test_a_proxy_on_this_host_is_asked_wherever_a_server_leads_to(leading, host, monkeypatch):
    url, handler = leading
    asked = []

    class Proxy(Leading):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"image")

    handler.to = "http://images.example.org/x"
    with served(Proxy, at="127.0.0.2") as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        got = saltvirt_web.fetch_small(
            f"{url}/x", 100, Meter(writelimit.from_settings(host), "x", host.images)
        )

    assert got == b"image" and asked == ["http://images.example.org/x"]


@pytest.mark.parametrize("scheme", ["file", "ftp", "data"])
def test_only_what_is_of_the_web_is_opened(host, image, scheme):
    url = {"file": f"file://{image}", "ftp": "ftp://127.0.0.1:9/x", "data": "data:,x"}[scheme]

    with pytest.raises(ImageError, match=f"unknown url type: {scheme}"):
        saltvirt_web.fetch_small(url, 100, Meter(writelimit.from_settings(host), "x", host.images))


@pytest.fixture
def proved(tmp_path, monkeypatch):
    """A web server with TLS that Python believes, and that leads to wherever it is told."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now - day, now + day)
    cert = made.add_extension(address, critical=False).sign(key, hashes.SHA256())
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

    handler = type("Handler", (Leading,), {})
    with served(handler, context) as address:
        yield address.replace("http:", "https:"), handler


def test_a_server_that_is_proved_leads_to_none_that_is_not(web, proved, host, image):
    plain, asked = web
    url, handler = proved
    handler.to = f"{plain}/{image.name}"

    with pytest.raises(ImageError, match="leads to http://127.0.0.1, where nobody vouches"):
        obtain(host, f"{url}/x.qcow2")
    with pytest.raises(ImageError, match="leads to http://127.0.0.1, where nobody vouches"):
        saltvirt_web.fetch_small(
            f"{url}/x", 100, Meter(writelimit.from_settings(host), "x", host.images)
        )
    assert asked == []


def test_an_image_of_the_web_is_fetched_once_per_version(web, host, image):
    url, asked = web
    heard = []

    first = obtain(host, f"{url}/{image.name}", heard)
    again = obtain(host, f"{url}/{image.name}")

    assert first == again
    assert asked == [200, 304]
    assert heard[-1] == (image.stat().st_size,) * 2


class Unchanged(http.server.BaseHTTPRequestHandler):
    """Says that nothing has changed, to whomever; cuts the first answer off, if it is to."""

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

    def log_message(self, *_said):
        """Say nothing."""


@pytest.mark.parametrize("cuts", [False, True])
def test_what_has_not_changed_is_not_taken_for_what_has_arrived(host, cuts):
    """The beginning of a script would be a whole one."""
    with served(type("Handler", (Unchanged,), {"cuts": cuts})) as url:
        for _time in range(2):
            with pytest.raises(ImageError, match=r"x.sh (cannot be fetched: HTTP 304|was cut off)"):
                obtain(host, f"{url}/x.sh", validate=validation.accept_any)


def test_what_the_web_does_not_have_is_said(web, host):
    url, _asked = web

    with pytest.raises(ImageError, match=r"none.img cannot be fetched: HTTP 404"):
        obtain(host, f"{url}/none.img")
    with pytest.raises(ImageError, match="cannot be fetched"):
        obtain(host, "http://127.0.0.1:9/x.img")


class Shaky(http.server.BaseHTTPRequestHandler):
    """A server that hangs up after so many bytes of each answer."""

    data, tag, most, asked = b"", '"one"', 10, ()

    def do_GET(self):
        self.asked.append(self.headers.get("Range"))
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
    """Serve with :class:`Shaky`; yield the address and the handler to be changed."""
    handler = type("Handler", (Shaky,), {"asked": []})
    with served(handler) as address:
        yield f"{address}/x.img", handler


def partials(host):
    """Return what lies in the cache of a download that is not over."""
    return sorted(p.name for p in cache.ensure_folder(host).glob("*.partial*"))


def test_a_download_that_breaks_goes_on_where_it_was(shaky, host, raw_disk):
    url, handler = shaky
    handler.data, handler.most = raw_disk.read_bytes(), 3 * MIB

    got = obtain(host, url)

    assert Path(got.path).read_bytes() == handler.data
    assert handler.asked == [None, f"bytes={3 * MIB}-", f"bytes={6 * MIB}-"]
    assert partials(host) == []


def test_what_arrived_is_kept_for_the_next_call(shaky, host, raw_disk):
    url, handler = shaky
    handler.data, handler.most = raw_disk.read_bytes(), MIB

    with pytest.raises(ImageError, match="cut off: 5242880 of 8388608 bytes .* try again"):
        obtain(host, url)
    assert len(partials(host)) == 2
    handler.most = 8 * MIB
    obtain(host, url)

    assert handler.asked[-1] == f"bytes={5 * MIB}-"
    assert partials(host) == []


def test_what_arrived_before_the_host_was_started_anew_is_not_trusted(
    shaky, host, raw_disk, monkeypatch
):
    # Faked: after a power cut the length of a file may be there, and its bytes zeros.
    url, handler = shaky
    handler.data, handler.most = raw_disk.read_bytes(), MIB
    with pytest.raises(ImageError, match="cut off"):
        obtain(host, url)
    (part,) = cache.ensure_folder(host).glob("*.partial")
    part.write_bytes(bytes(part.stat().st_size))
    monkeypatch.setattr(files, "read_boot_id", lambda: "another")
    handler.most = 8 * MIB

    got = obtain(host, url)

    assert Path(got.path).read_bytes() == handler.data
    assert handler.asked[-1] is None


def test_the_beginning_of_an_older_version_is_thrown_away(shaky, host, raw_disk, image):
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
    assert set(handler.asked) == {None}


def test_a_download_that_nobody_takes_up_is_swept_after_a_day(host, image):
    old, new = (cache.ensure_folder(host) / f"{name}.partial" for name in ("old", "new"))
    old.write_text("x")
    new.write_text("x")
    os.utime(old, (0, 0))

    removal.sweep(host)

    assert partials(host) == ["new.partial"]


class Odd(http.server.BaseHTTPRequestHandler):
    """A server whose words would steer a terminal, and whose numbers are none."""

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
def test_what_a_server_says_is_one_line_and_its_numbers_are_some(host, name):
    with served(Odd) as address, pytest.raises(ImageError) as caught:
        obtain(host, f"{address}/{name}")

    assert str(caught.value).isprintable() and len(str(caught.value)) < 500
