"""Images by URLs that say more than a path: an environment of Salt, letters beyond ASCII."""

import http.server
import shutil
import subprocess
import urllib.parse

import pytest
import salt.config
from fetching import obtain, served
from saltvirt.core.errors import BadArgument, ImageError
from saltvirt.core.http import web
from saltvirt.storage.images import cache, source


@pytest.fixture
def image(tmp_path):
    """A good qcow2 image."""
    path = tmp_path / "good.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, "1M"], check=True)
    return path


@pytest.fixture
def opts(tmp_path, image):
    """A file server with two environments, whose images have the same name."""
    roots = {"base": tmp_path / "base-files", "prod": tmp_path / "prod-files"}
    for env, size in (("base", "2M"), ("prod", "3M")):
        roots[env].mkdir()
        path = roots[env] / "x.qcow2"
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, size], check=True)
    return {
        **salt.config.minion_config(None),
        "file_client": "local",
        "file_roots": {env: [str(path)] for env, path in roots.items()},
        "cachedir": str(tmp_path / "cache"),
        "id": "hyper1",
        "__role": "minion",
    }


@pytest.mark.parametrize(
    ("name", "saltenv", "mib"),
    [
        ("salt://x.qcow2", "base", 2),
        ("salt://x.qcow2", "prod", 3),
        ("salt://x.qcow2?saltenv=prod", "base", 3),
        ("salt://x.qcow2?saltenv=base", "prod", 2),
    ],
)
def test_an_image_is_of_the_environment_that_its_url_names(host, opts, name, saltenv, mib):
    found = obtain(host, name, saltenv=saltenv, opts=opts)

    assert found.size_bytes == mib * 1024**2
    assert cache.peek(name, saltenv, host, opts) == found
    digest = cache.digest_of(host, found.path)
    assert cache.read_note(host, digest)["source"] == name


def test_an_environment_that_salt_would_leave_out_is_refused(host, opts):
    with pytest.raises(BadArgument, match=r"write \?saltenv= instead of \?env="):
        obtain(host, "salt://x.qcow2?env=prod", opts=opts)


def test_an_environment_without_the_image_is_named(host, opts):
    with pytest.raises(ImageError, match="is not on the Salt file server .saltenv dev."):
        obtain(host, "salt://x.qcow2?saltenv=dev", opts=opts)
    assert source.split_environment("salt://a/b", "base") == ("salt://a/b", "base")


@pytest.mark.parametrize("name", ["größe.qcow2", "a b.qcow2", "a%20b.qcow2", "日本.qcow2"])
def test_an_image_whose_url_has_other_letters_is_fetched(host, image, tmp_path, name):
    shutil.copy(image, tmp_path / urllib.parse.unquote(name))

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, directory=str(tmp_path), **kwargs)

        def log_message(self, *_args):
            pass

    with served(Handler) as address:
        assert obtain(host, f"{address}/{name}").size_bytes == 1024**2


@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://bücher.example/a", "http://xn--bcher-kva.example/a"),
        ("http://bücher.example:8080/a?q=ü&b=%C3%BC", None),
        ("https://[::1]:8443/ä", "https://[::1]:8443/%C3%A4"),
        ("https://[::1]/a", "https://[::1]/a"),
        ("http://a.example/%2e?x=1#y", "http://a.example/%2e?x=1#y"),
    ],
)
def test_a_server_is_asked_for_ascii_alone(url, asked):
    wanted = asked or "http://xn--bcher-kva.example:8080/a?q=%C3%BC&b=%C3%BC"
    assert web.encode_url(urllib.parse.urlsplit(url)) == wanted


@pytest.mark.parametrize("url", ["http://a.example/a\x01b", f"http://{'ü' * 70}.example/a"])
def test_what_cannot_be_asked_for_is_no_url(host, url):
    with pytest.raises(ImageError, match="it is not a URL"):
        obtain(host, url)
