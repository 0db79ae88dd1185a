"""Files of checksums on the web: read up to a limit of size and time, and never kept."""

import hashlib
import http.server
import tempfile
import time
from pathlib import Path

import pytest
import salt.config
import salt.loader
from fetching import served
from saltvirt.core.errors import BadArgument
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.core.units import MIB
from saltvirt.storage.images import fetch

DISK = (bytes(510) + b"\x55\xaa").ljust(MIB, b"\0")


class Web(http.server.BaseHTTPRequestHandler):
    """A server of an image and its checksums, or of what never ends."""

    sent = 0

    def do_GET(self):
        self.send_response(200)
        if self.path == "/trickles":
            return self.trickle()
        self.end_headers()
        try:
            for piece in self.content():
                self.wfile.write(piece)
                type(self).sent += len(piece)
        except ConnectionError:
            pass

    def trickle(self):
        """Say a header now and then."""
        try:
            for number in range(100):
                self.wfile.write(b"".join(self._headers_buffer) + b"X-%d: a\r\n" % number)
                self._headers_buffer = []
                time.sleep(0.1)
        except ConnectionError:
            pass

    def content(self):
        """Return what is at a path, in pieces."""
        digest = hashlib.sha512(DISK).hexdigest()
        lines = f"{'0' * 128}  other.img\n{digest}  disk.img\n".encode()
        return {
            "/disk.img": [DISK],
            "/SUMS": [lines],
            "/latin": [b"# f\xfcr alle\n" + lines],
            "/none": [b"there is nothing here\n"],
            "/endless": (b"#" * 65535 + b"\n" for _ in range(320)),
        }[self.path]

    def log_message(self, *_args):
        pass


@pytest.fixture
def web():
    """Serve with :class:`Web`; yield the address and the handler."""
    handler = type("Handler", (Web,), {})
    with served(handler) as address:
        yield address, handler


@pytest.fixture
def context(tmp_path, monkeypatch):
    """A minion with Salt's own functions, on which a step with an image has a second."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    opts = {
        **salt.config.minion_config(None),
        "file_client": "local",
        "cachedir": str(tmp_path / "cache"),
        "root_dir": str(tmp_path),
        "pki_dir": str(tmp_path / "pki"),
        "extension_modules": str(tmp_path / "extmods"),
        "id": "hyper1",
        "grains": {"os": "Debian", "os_family": "Debian", "kernel": "Linux"},
    }
    settings = HostSettings(
        images=str(tmp_path / "images"), state_dir=str(tmp_path / "state"), image_limit_s=1
    )
    return Context(settings=settings, opts=opts, functions=salt.loader.minion_mods(opts))


def kept(tmp_path):
    """Return the files that a minion has beside its images, and those in its temporary folder."""
    found = [*(tmp_path / "cache").rglob("*"), *(tmp_path / "tmp").rglob("*")]
    return [path.name for path in found if path.is_file() and path.suffix != ".p"]


@pytest.mark.parametrize("name", ["SUMS", "latin"])
def test_a_file_of_checksums_is_read_by_salt_and_not_kept(web, context, tmp_path, name):
    url, _handler = web

    got = fetch.obtain(context, f"{url}/disk.img", "base", image_hash=f"{url}/{name}")

    assert Path(got.path).read_bytes() == DISK
    assert kept(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("endless", "it has more than 1.0M"),
        ("trickles", r"it does not arrive in the time that it has \(virt:image_limit_s\)"),
        ("none", "Source hash .*/none format is invalid"),
    ],
)
def test_one_that_is_none_is_refused_soon(web, context, tmp_path, name, why):
    url, handler = web
    began = time.monotonic()

    with pytest.raises(BadArgument, match=f"no checksum of .*/disk.img in '.*/{name}': {why}"):
        fetch.obtain(context, f"{url}/disk.img", "base", image_hash=f"{url}/{name}")

    assert time.monotonic() - began < 4
    # What the sockets take on is more than what is read.
    assert handler.sent < 12 * MIB
    assert kept(tmp_path) == []


def test_what_has_no_limit_is_not_asked(context):
    with pytest.raises(BadArgument, match=r"'ftp://127.0.0.1/SUMS': write a checksum, or where"):
        fetch.obtain(context, "salt://disk.img", "base", image_hash="ftp://127.0.0.1/SUMS")
