"""What a minion is installed from, brought to this host before a guest's disk is touched."""

from collections.abc import Sequence
from dataclasses import replace

from saltvirt import arguments
from saltvirt.arguments import shown
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument
from saltvirt.image import validation
from saltvirt.ops.context import Context
from saltvirt.ops.images import fetch
from saltvirt.seed.model import Installation

_TARBALLS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz")
_PACKAGES = (".deb", ".rpm")


def source(settings: HostSettings, asked: object) -> tuple[str, ...] | None:
    """Return where minions are installed from, as a tuple of URLs or paths; None if unsaid."""
    given = asked if asked is not None else settings.seed.get("install_from")
    urls = arguments.names("install_from", given)
    for url in urls:
        if not arguments.is_image(url):
            raise BadArgument(
                "install_from",
                f"{shown(url)!r}; write salt://path, http(s)://... or an absolute path",
            )
    if len(urls) > 1 and not all(kind(url) == "package" for url in urls):
        raise BadArgument("install_from", "only packages (.deb or .rpm) can be several files")
    return urls or None


def kind(url: str) -> str:
    """Return what is done with a file: ``tarball``, ``package`` or ``script``."""
    name = shown(url)
    if name.endswith(_TARBALLS):
        return "tarball"
    return "package" if name.endswith(_PACKAGES) else "script"


def decided(urls: Sequence[str] | None, arch: str | None) -> Installation:
    """
    Return how a worker will install a minion, from what is still to be fetched.

    urls
        As :func:`source` returns it; None means the guest's own package manager. ``{arch}`` in a
        URL is the guest's processor: ``x86_64``, ``aarch64``.
    """
    if not urls:
        return Installation(kind="repository", network=True)
    if any("{arch}" in url for url in urls) and arch in (None, "unknown"):
        raise BadArgument(
            "install_from",
            "nothing is known about the image's processor; write the file's name instead of {arch}",
        )
    named = tuple(url.replace("{arch}", str(arch)) for url in urls)
    return Installation(kind=kind(urls[0]), urls=named, network=kind(urls[0]) == "script")


def fetched(context: Context, wanted: Installation, saltenv: str) -> Installation:
    """Return how a worker installs a minion, with what it needs on this host."""
    files = tuple(
        (
            fetch.obtain(context, url, saltenv, validation.accept_any).path,
            shown(url).rpartition("/")[2],
        )
        for url in wanted.urls
    )
    return replace(wanted, files=files)


def prepared(
    context: Context, urls: Sequence[str] | None, arch: str | None, saltenv: str
) -> Installation:
    """Return how a worker installs a minion, with all its files on this host."""
    return fetched(context, decided(urls, arch), saltenv)
