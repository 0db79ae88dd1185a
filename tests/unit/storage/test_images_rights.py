"""Who may read what was fetched, and what is known of a URL with secrets in it."""

import base64
import http.server
import os
import stat
import subprocess

import pytest
from fetching import obtain, served
from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument, ImageError
from saltvirt.core.units import MIB
from saltvirt.storage.images import cache, rights, source, validation


@pytest.fixture
def image(tmp_path):
    """A good qcow2 image."""
    path = tmp_path / "good.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, "1M"], check=True)
    return path


@pytest.fixture
def bare_umask():
    """Let everything be made as open as it is asked for."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path):
    """Return a file's rights."""
    return stat.S_IMODE(os.stat(path).st_mode)


def fetched(host, given, validate=validation.validate):
    """Fetch a file, as what it is taken for."""
    return cache.obtain(
        str(given),
        saltenv="base",
        settings=host,
        opts={},
        validate=validate,
        progress=lambda *_: None,
    )


@pytest.mark.usefixtures("bare_umask")
def test_a_disk_is_readable_for_qemu_and_what_is_noted_of_it_is_not(host, image):
    subprocess.run(["qemu-img", "snapshot", "-c", "one", image], check=True)
    got = obtain(host, image)

    rest = [path for path in cache.ensure_folder(host).iterdir() if str(path) != got.path]
    assert mode(got.path) == 0o644
    assert {path.suffix: mode(path) for path in rest} == {".json": 0o600, ".flat": 0o600}
    assert mode(cache.ensure_folder(host)) == 0o711


@pytest.mark.usefixtures("bare_umask")
def test_what_is_not_a_disk_is_readable_for_this_host_alone(host, tmp_path):
    given = tmp_path / "minion.deb"
    given.write_text("a package")
    given.chmod(0o644)

    got = fetched(host, given, validation.accept_any)
    was = mode(got.path)
    rights.let_qemu_read(got.path)

    assert (was, mode(got.path)) == (0o600, 0o644)
    assert fetched(host, given, validation.accept_any) == got


class Asking(http.server.BaseHTTPRequestHandler):
    """A server that wants a name and a password, then leads to another name of it."""

    data, asked, parts, folder = b"", (), (), None

    def do_GET(self):
        self.asked.append((self.path, self.headers.get("Authorization")))
        if self.path.startswith("/moved"):
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.server.server_port}/there.img")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.data[: MIB // 2])
        self.wfile.flush()
        self.parts.extend(mode(path) for path in self.folder.glob("*.partial"))
        self.wfile.write(self.data[MIB // 2 :])

    def log_message(self, *_args):
        pass


@pytest.fixture
def asking(host, image):
    """Serve with :class:`Asking`; yield the address and the handler to be changed."""
    kept = {
        "asked": [],
        "parts": [],
        "folder": cache.ensure_folder(host),
        "data": image.read_bytes(),
    }
    handler = type("Handler", (Asking,), kept)
    with served(handler) as address:
        yield address.removeprefix("http://"), handler


def told(host):
    """Return all that is in the notes of the cache."""
    return "".join(path.read_text() for path in sorted(cache.ensure_folder(host).glob("*.json")))


def test_what_is_secret_of_a_url_is_sent_to_its_server_and_stored_nowhere(host, asking):
    address, handler = asking
    url = f"http://me:p%40ss-word@{address}/moved.img?sig=s3cret#part"

    got = obtain(host, url)
    again = obtain(host, url)

    basic = f"Basic {base64.b64encode(b'me:p@ss-word').decode()}"
    assert handler.asked[:2] == [("/moved.img?sig=s3cret", basic), ("/there.img", None)]
    assert cache.read_note(host, cache.digest_of(host, got.path))["source"] == (
        f"http://{address}/moved.img"
    )
    assert not any(secret in told(host) for secret in ("s3cret", "ss-word", "me:", "sig"))
    assert got == again == cache.peek(url, "base", host, {})


@pytest.mark.usefixtures("bare_umask")
def test_a_download_under_way_is_readable_for_this_host_alone(host, asking):
    address, handler = asking
    handler.data = (bytes(510) + b"\x55\xaa").ljust(8 * MIB, b"\0")

    obtain(host, f"http://{address}/x.img")

    assert set(handler.parts) <= {0o600}


@pytest.mark.parametrize(
    "path", ["/x.img?sig=s3cret", "/x y.img?sig=s3cret", "/x\n.img?sig=s3cret#s3cret"]
)
def test_no_error_says_what_is_secret_of_a_url(host, path):
    for url in (
        f"http://me:s3cret@127.0.0.1:9{path}",
        f"http://me:s3cret@127.0.0.1:x{path}",
        f"http://me:s3cret@[::1{path}",
    ):
        with pytest.raises(ImageError, match="cannot be fetched") as refused:
            obtain(host, url)
        assert "s3cret" not in str(refused.value)


def test_what_is_shown_of_a_source():
    assert (
        arguments.hide_credentials("https://a:b@c.org:8/d/e.img?f=g#h") == "https://c.org:8/d/e.img"
    )
    assert arguments.hide_credentials("HTTPS://a@c.org") == "HTTPS://c.org"
    for plain in ("salt://a@b?saltenv=dev", "/srv/a@b?c.img", "file:///a?b", "https://c.org/d@e"):
        assert arguments.hide_credentials(plain) == plain
    with pytest.raises(BadArgument, match="'ftp://x' is not an image"):
        source.kind("ftp://x")
