"""What a minion is installed from, brought to this host before a guest's disk is touched."""

from collections.abc import Sequence
from dataclasses import replace

from saltvirt import arguments
from saltvirt.arguments import shown
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument, SeedError
from saltvirt.image import validation
from saltvirt.ops.context import Context
from saltvirt.ops.images import fetch
from saltvirt.seed.model import Installation

_TARBALLS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz")
_PACKAGES = (".deb", ".rpm")
_UNSAID = (
    "there is no salt-minion in it, and nothing says what to install it from; give install_from=, "
    "or set virt:seed:install_network: True to let the guest's own repositories be used"
)
# What a disk gets that nobody has looked into: it is refused only if it has no minion.
REFUSED = Installation(kind="refused", why=_UNSAID)


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


def uses_network(settings: HostSettings) -> bool:
    """Return whether an appliance that installs something gets a network."""
    return settings.seed.get("install_network") is True


def decided(
    urls: Sequence[str] | None, arch: str | None, *, is_networked: bool = False
) -> Installation:
    """
    Return how a worker will install a minion, from what is still to be fetched.

    urls
        As :func:`source` returns it; None means the guest's own package manager. ``{arch}`` in a
        URL is the guest's processor: ``x86_64``, ``aarch64``.
    is_networked
        As :func:`uses_network` says; without it nothing comes from the guest's repositories.
    """
    if not urls and not is_networked:
        raise SeedError(_UNSAID)
    if not urls:
        return Installation(kind="repository", network=True)
    if any("{arch}" in url for url in urls) and arch in (None, "unknown"):
        raise BadArgument(
            "install_from",
            "nothing is known about the image's processor; write the file's name instead of {arch}",
        )
    named = tuple(url.replace("{arch}", str(arch)) for url in urls)
    is_script = kind(urls[0]) == "script"
    return Installation(kind=kind(urls[0]), urls=named, network=is_networked and is_script)


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
    networked = uses_network(context.settings)
    return fetched(context, decided(urls, arch, is_networked=networked), saltenv)
