"""Sources of a minion's installation: chosen, and fetched before a guest's disk is touched."""

import platform
from collections.abc import Sequence
from dataclasses import replace

from salt.exceptions import SaltException

from saltvirt.core import arguments
from saltvirt.core.arguments import hide_credentials
from saltvirt.core.errors import BadArgument, ImageError, SeedError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.context import Context
from saltvirt.seeding.seedmodel import Inspection, Installation
from saltvirt.seeding.shared import minionpackages
from saltvirt.seeding.shared.minionpackages import BASE, Package
from saltvirt.storage.images import cache, fetch, validation

_TARBALLS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz")
_PACKAGES = (".deb", ".rpm")
_NO_SOURCE = (
    "there is no salt-minion in it, and nothing says what to install it from; run "
    f"`{minionpackages.COMMAND}` on the master, give install_from=, or set "
    "virt:seed:install_network: True to let the guest's own repositories be used"
)
# For a disk that was not inspected: the worker refuses the disk only if it has no minion.
REFUSED = Installation(kind="refused", refusal=_NO_SOURCE)


def source(settings: HostSettings, requested_source: object) -> tuple[str, ...] | None:
    """Return the URLs or paths from which minions are installed; None if unset."""
    install_from = (
        requested_source if requested_source is not None else settings.seed.get("install_from")
    )
    urls = arguments.names("install_from", install_from)
    for url in urls:
        if not arguments.is_image(url):
            raise BadArgument(
                "install_from",
                f"{hide_credentials(url)!r}; write salt://path, http(s)://... or an absolute path",
            )
    if len(urls) > 1 and not all(kind(url) == "package" for url in urls):
        raise BadArgument("install_from", "only packages (.deb or .rpm) can be several files")
    return urls or None


def kind(url: str) -> str:
    """Return the kind of a file to install from: ``tarball``, ``package`` or ``script``."""
    name = hide_credentials(url)
    if name.endswith(_TARBALLS):
        return "tarball"
    return "package" if name.endswith(_PACKAGES) else "script"


def uses_network(settings: HostSettings) -> bool:
    """Return whether an appliance that installs a minion gets a network."""
    return settings.seed.get("install_network") is True


def decide(
    urls: Sequence[str] | None,
    arch: str | None,
    *,
    is_networked: bool = False,
    packages: Sequence[Package] = (),
) -> Installation:
    """
    Return how a worker will install a minion; nothing is fetched yet.

    urls
        From :func:`source`; None means the guest's own package manager. ``{arch}`` in a URL is the
        guest's processor: ``x86_64``, ``aarch64``.
    is_networked
        From :func:`uses_network`; without it the guest's repositories cannot be used.
    packages
        The packages of ``urls``, if the master has fetched them for guests. Defaults to none.
    """
    digests = {package.url: package.sha256 for package in packages}
    if not urls and not is_networked:
        raise SeedError(_NO_SOURCE)
    if not urls:
        return Installation(kind="repository", network=True)
    if any("{arch}" in url for url in urls) and arch in (None, "unknown"):
        raise BadArgument(
            "install_from",
            "nothing is known about the image's processor; write the file's name instead of {arch}",
        )
    file_urls = tuple(url.replace("{arch}", str(arch)) for url in urls)
    is_script = kind(urls[0]) == "script"
    return Installation(
        kind=kind(urls[0]),
        urls=file_urls,
        digests=tuple(map(digests.get, file_urls)),
        saltenv=packages[0].saltenv if packages else None,
        network=is_networked and is_script,
    )


def fetch_files(context: Context, installation: Installation, saltenv: str) -> Installation:
    """Fetch the files of an installation to this host; return the installation with them."""
    saltenv = installation.saltenv or saltenv
    files = tuple(
        (_fetch_file(context, url, digest, saltenv), hide_credentials(url).rpartition("/")[2])
        for url, digest in zip(installation.urls, installation.digests, strict=True)
    )
    return replace(installation, files=files)


def _fetch_file(context: Context, url: str, digest: str | None, saltenv: str) -> str:
    """Fetch a file and return its path; raise SeedError if it has another digest."""
    try:
        path = fetch.obtain(context, url, saltenv, validation.accept_any).path
    except ImageError as exc:
        if digest is None:
            raise
        raise SeedError(
            f"{url} cannot be fetched, though the index of minions has it: "
            f"{str(exc).removeprefix('image ')}; {minionpackages.remedy(saltenv)}"
        ) from exc
    # The cache names files by their digests, which were checked on arrival.
    if digest and cache.digest_of(context.settings, path) != digest:
        raise SeedError(
            f"{url} is not the file that was fetched for guests: its SHA-256 is another; "
            f"{minionpackages.remedy(saltenv)}"
        )
    return path


def prepare(
    context: Context,
    urls: Sequence[str] | None,
    arch: str | None,
    saltenv: str,
    packages: Sequence[Package] = (),
) -> Installation:
    """
    Return how a worker installs a minion, with all files on this host.

    packages
        The packages to use without ``urls``. Defaults to none.
    """
    installation = decide(
        urls or [package.url for package in packages],
        arch,
        is_networked=uses_network(context.settings),
        packages=packages if not urls else (),
    )
    return fetch_files(context, installation, saltenv)


def read_index(context: Context, saltenv: str) -> minionpackages.Index:
    """Return the index of packages on the file server; empty if the master has fetched none."""
    url = f"salt://{minionpackages.FOLDER}/{minionpackages.INDEX}"
    try:
        # Check first: Salt logs an error when a missing file is requested.
        if not context.functions["cp.hash_file"](url, saltenv):
            return {}
        text = context.functions["cp.get_file_str"](url, saltenv)
        return minionpackages.read_index(text or "")
    except (SaltException, OSError, ValueError) as exc:
        reason = " ".join(str(exc).split())
        raise SeedError(
            f"{url} cannot be read: {reason}; {minionpackages.remedy(saltenv)}"
        ) from exc


def find_suitable(
    context: Context, content: Inspection | None, saltenv: str
) -> tuple[Package, ...]:
    """
    Return the packages for an image; none if the image has a minion.

    An unreadable index in the image's own environment is an error: another environment's minion,
    perhaps of another release, would hide that error.
    """
    if content is None or content.root is None or content.has_minion:
        return ()
    packages = _choose_packages(read_index(context, saltenv), content)
    if packages or saltenv == BASE:
        return packages
    # An environment for images need not have minion packages of its own.
    return tuple(
        replace(package, saltenv=BASE)
        for package in _choose_packages(read_index(context, BASE), content)
    )


def _choose_packages(
    package_index: minionpackages.Index, content: Inspection
) -> tuple[Package, ...]:
    return minionpackages.choose_packages(
        package_index,
        content.os,
        content.arch,
        runs_here=content.arch == platform.machine(),
        has_systemd=content.has_systemd,
    )
