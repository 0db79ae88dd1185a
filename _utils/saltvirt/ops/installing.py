"""What a minion is installed from, brought to this host before a guest's disk is touched."""

from saltvirt import arguments
from saltvirt.errors import BadArgument
from saltvirt.image import gate
from saltvirt.ops import fetching

_TARBALLS = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz")
_PACKAGES = (".deb", ".rpm")


def source(settings, asked):
    """Return where minions are installed from, as a tuple of URLs or paths; None if unsaid."""
    given = asked if asked is not None else settings.seed.get("install_from")
    urls = arguments.names("install_from", given)
    for url in urls:
        if not arguments.is_image(url):
            raise BadArgument("install_from", f"{url!r}; write salt://path, http(s)://... or an "
                              "absolute path")  # fmt: skip
    if len(urls) > 1 and not all(url.endswith(_PACKAGES) for url in urls):
        raise BadArgument("install_from", "only packages (.deb or .rpm) may be several")
    return urls or None


def kind(url):
    """Return what is done with a file: ``tarball``, ``package`` or ``script``."""
    if url.endswith(_TARBALLS):
        return "tarball"
    return "package" if url.endswith(_PACKAGES) else "script"


def prepared(context, urls, arch, saltenv):
    """
    Return how a worker installs a minion: ``{"kind", "files": [(path, name)], "network"}``.

    urls
        As :func:`source` returns it; None means the guest's own package manager. ``{arch}`` in a
        URL is the guest's processor: ``x86_64``, ``aarch64``.
    """
    if not urls:
        return {"kind": "repository", "files": [], "network": True}
    files = []
    for url in urls:
        if "{arch}" in url and arch in (None, "unknown"):
            raise BadArgument("install_from", "nothing is known of the image's processor; write "
                              "the file's name instead of {arch}")  # fmt: skip
        url = url.replace("{arch}", str(arch))
        found = fetching.obtain(context, url, saltenv, gate.accept_any)
        files.append((found.path, url.rpartition("/")[2]))
    return {"kind": kind(urls[0]), "files": files, "network": kind(urls[0]) == "script"}
