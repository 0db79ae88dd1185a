"""Images that would fill a host: stopped in every step, and nothing of them is left."""

import gzip
import http.server
import os
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest
import salt.config
from fetching import least_free, obtain, served
from saltvirt.core import writelimit
from saltvirt.core.errors import ImageError
from saltvirt.core.model import Disk
from saltvirt.core.units import MIB
from saltvirt.core.writelimit import OverLimit
from saltvirt.migration.host import arrivalplan
from saltvirt.placement.answers import ImageFacts
from saltvirt.storage.images import cache, clone, tool, validation

pytestmark = pytest.mark.slow

KEPT_MIB = 20


@pytest.fixture
def small(host, small_disk):
    """Settings of a host whose disk has 40 MiB, of which 20 are kept for VMs."""
    return replace(host, images=str(small_disk / "images"), disk_reserve_mib=KEPT_MIB)


@pytest.fixture(scope="module")
def bomb(tmp_path_factory):
    """A qcow2 image with a snapshot: small here, 256 MiB as soon as it is flattened."""
    folder = tmp_path_factory.mktemp("bomb")
    raw, path = folder / "raw", folder / "bomb.qcow2"
    raw.write_bytes(bytes(510) + b"\x55\xaa" + b"a" * (256 * MIB - 512))
    for argv in (
        ["convert", "-c", "-f", "raw", "-O", "qcow2", raw, path],
        ["snapshot", "-c", "before", path],
    ):
        subprocess.run(["qemu-img", *argv], check=True)
    raw.unlink()
    assert path.stat().st_size < 4 * MIB
    return path


@pytest.fixture
def raw_disk(tmp_path):
    """A raw disk of 32 MiB, all of it written."""
    path = tmp_path / "disk.raw"
    path.write_bytes((bytes(510) + b"\x55\xaa") * (64 * 1024))
    return path


def left(settings):
    """Return what is in a cache beside its index."""
    return sorted(set(os.listdir(cache.ensure_folder(settings))) - {"index.json"})


def test_an_image_that_swells_is_stopped_before_vms_suffer(small, small_disk, bomb):
    with (
        least_free(small_disk) as least,
        pytest.raises(ImageError, match=r"bomb.qcow2 .*kept for VMs \(virt:disk_reserve_mib\)"),
    ):
        obtain(small, bomb)

    assert least[0] >= (KEPT_MIB - 1) * MIB
    assert left(small) == []


def test_an_image_that_swells_is_stopped_at_the_most_that_an_image_may_take(host, bomb):
    with pytest.raises(ImageError, match=r"has a size of 256.0M; the most is 16.0M"):
        obtain(replace(host, image_max_gib=1 / 64), bomb)

    assert left(host) == []


def test_one_for_which_there_is_room_is_flattened(host, bomb):
    got = obtain(replace(host, image_max_gib=1 / 4), bomb)

    assert 256 * MIB <= os.path.getsize(got.path) < 257 * MIB


@pytest.mark.parametrize("fmt", ["raw", "qcow2", "vmdk"])
def test_a_conversion_is_stopped_in_every_format(small_disk, bomb, fmt):
    target = small_disk / "out"
    limits = writelimit.Room(max_bytes=1 << 40, reserve_bytes=KEPT_MIB * MIB, limit_s=60)

    with (
        least_free(small_disk) as least,
        pytest.raises(OverLimit, match=f"no room for image {bomb} in {small_disk}"),
        clone.remove_on_failure(target),
    ):
        tool.convert(bomb, "qcow2", target, fmt, limits.meter(bomb, small_disk))

    # Of a raw disk the size says nothing, so it is looked at ten times a second.
    assert least[0] >= (0 if fmt == "raw" else KEPT_MIB - 1) * MIB
    assert not target.exists()


def test_a_conversion_has_its_time(tmp_path, bomb):
    limits = writelimit.Room(max_bytes=1 << 40, reserve_bytes=0, limit_s=0)

    with (
        pytest.raises(OverLimit, match="took longer than 0 s"),
        clone.remove_on_failure(tmp_path / "out"),
    ):
        tool.convert(bomb, "qcow2", tmp_path / "out", "raw", limits.meter(bomb, tmp_path))

    assert not (tmp_path / "out").exists()


def test_a_disk_is_not_copied_into_what_is_kept_for_vms(small_disk, raw_disk):
    limits = writelimit.Room(max_bytes=1 << 40, reserve_bytes=KEPT_MIB * MIB, limit_s=60)
    base, path = validation.validate(raw_disk), small_disk / "disk"
    how = clone.plan(Disk(name="system", target="vda", size_mib=64), base, False)

    with least_free(small_disk) as least, pytest.raises(OverLimit, match="it takes 32.0M, and 40"):
        clone.make(base, path, how, limits)

    assert least[0] >= 39 * MIB


@pytest.fixture
def context(small, tmp_path):
    """A job on a host whose file server is a folder."""
    opts = {
        **salt.config.minion_config(None),
        "file_client": "local",
        "file_roots": {"base": [str(tmp_path)]},
        "cachedir": str(tmp_path / "cache"),
        "id": "hyper1",
        "__role": "minion",
    }
    return SimpleNamespace(opts=opts, settings=small)


def pulled(context, image):
    """Fetch an image from the file server."""
    return cache.obtain(
        image,
        saltenv="base",
        settings=context.settings,
        opts=context.opts,
        progress=lambda *_: None,
    )


@pytest.mark.parametrize("is_size_known", [True, False])
def test_the_file_servers_images_are_stopped_too(context, raw_disk, monkeypatch, is_size_known):
    if not is_size_known:
        # As of a file server that does not say it, such as one of git.
        told = cache.source.known_digest
        monkeypatch.setattr(
            cache.source, "known_digest", lambda *given: {**told(*given), "size_bytes": None}
        )
    with (
        least_free(context.settings.images.removesuffix("/images")) as least,
        pytest.raises(OverLimit, match=f"no room for image salt://{raw_disk.name} in"),
    ):
        pulled(context, f"salt://{raw_disk.name}")

    assert least[0] >= (39 if is_size_known else KEPT_MIB - 2) * MIB
    assert left(context.settings) == []


def test_an_image_that_another_host_would_send_needs_room_here(context):
    image = ImageFacts(source="https://example.org/x.qcow2", file_bytes=30 * MIB)
    moving = SimpleNamespace(disks=[SimpleNamespace(how="copy", base="0" * 64, image=image)])

    with pytest.raises(OverLimit, match="no room for image 0000000000000000 in"):
        arrivalplan.gather(context, moving, frozenset(), "t1")


class Endless(http.server.BaseHTTPRequestHandler):
    """A server that has something to say for ever: fast, or a byte at a time."""

    length, each, pause_s = None, bytes(MIB), 0.0

    def do_GET(self):
        self.send_response(200)
        self.send_header("ETag", '"one"')
        if self.length:
            self.send_header("Content-Length", str(self.length))
        self.end_headers()
        try:
            while True:
                self.wfile.write(self.each)
                time.sleep(self.pause_s)
        except ConnectionError:
            pass

    def log_message(self, *_args):
        pass


@pytest.fixture
def endless():
    """Serve with :class:`Endless`; yield the address and the handler to be changed."""
    handler = type("Handler", (Endless,), {})
    with served(handler) as address:
        yield f"{address}/x.img", handler


@pytest.mark.parametrize("length", [None, 1 << 40])
def test_a_download_without_end_is_stopped_before_vms_suffer(small, small_disk, endless, length):
    url, handler = endless
    handler.length = length

    with least_free(small_disk) as least, pytest.raises(OverLimit, match="no room for image"):
        obtain(small, url)

    assert least[0] >= (KEPT_MIB - 2 if length is None else 39) * MIB
    assert left(small) == []


def test_a_download_has_the_most_that_an_image_may_take(host, endless):
    url, _handler = endless

    with pytest.raises(OverLimit, match=r"takes .* or more; the most is 16.0M"):
        obtain(replace(host, image_max_gib=1 / 64), url)

    assert left(host) == []


def test_a_download_that_drips_has_its_time_and_goes_on_in_the_next_call(host, endless):
    url, handler = endless
    handler.length, handler.each, handler.pause_s = 1000, b"x", 0.05
    began = time.monotonic()

    with pytest.raises(ImageError, match=r"cut off: \d+ bytes in the time that .* try again"):
        obtain(replace(host, image_limit_s=1), url)

    assert time.monotonic() - began < 10
    assert len(left(host)) == 2


def test_headers_that_drip_have_their_time_too(host, endless):
    url, handler = endless

    def drip(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        with suppress(ConnectionError):
            for number in range(100):
                self.wfile.write(b"X-%d: a\r\n" % number)
                time.sleep(0.05)

    handler.do_GET = drip
    began = time.monotonic()

    with pytest.raises(ImageError, match=r"cut off: 0 bytes in the time that .* try again"):
        obtain(replace(host, image_limit_s=1), url)

    assert time.monotonic() - began < 3
    assert left(host) == []


def test_what_is_compressed_is_not_unpacked_on_the_host(host, tmp_path):
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb") as out:
        out.write(bytes(32 * MIB))

    with pytest.raises(ImageError, match="is gzip, neither qcow2 nor raw"):
        obtain(replace(host, image_max_gib=1 / 64), path)

    assert left(host) == []
