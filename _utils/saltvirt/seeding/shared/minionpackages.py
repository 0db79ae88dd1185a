"""
The index of minion packages on the file server, and the choice for a guest.

The master writes the packages and the index; hosts read them.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from saltvirt.core import wire

FOLDER = "salt-virt/minion"
INDEX = "index.json"
COMMAND = "salt-run virt_image.minion_packages"
# The text on the console of a guest that has no minion and could not install one.
NO_MINION = (
    "salt-virt: there is no salt-minion in this image, and the package manager could not install "
    "one; use an image that has it"
)
# The environment to use if that of a guest's image has no index.
BASE = "base"
ONEDIR, DEB, RPM = "onedir", "deb", "rpm"
KINDS = (ONEDIR, DEB, RPM)
ARCHES = ("x86_64", "aarch64")
# Distributions by libguestfs' names for them, as in "debian 12".
_FAMILIES = {
    DEB: ("debian", "kalilinux", "linuxmint", "ubuntu"),
    RPM: (
        *("almalinux", "centos", "fedora", "oraclelinux", "redhat-based", "rhel", "rocky"),
        *("scientificlinux", "opensuse", "sles", "suse-based"),
    ),
}
# Distributions with a salt-minion in their own repositories: Arch and Fedora package Salt, and SUSE
# manages its systems with it. Debian dropped Salt with release 12, Ubuntu with 20.04; RHEL and its
# kin never had it.
_PACKAGED_BY = ("archlinux", "fedora", "opensuse", "sles", "suse-based")
# apt writes the epoch of a version as %3a.
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~%-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """
    A file of a minion for guests.

    file
        Its name in the folder on the file server.
    arch
        The guest's processor: ``x86_64`` or ``aarch64``.
    family
        Its kind of package, ``deb`` or ``rpm``; None for any system with systemd.
    saltenv
        Its environment on the file server, if that is not the image's.
    """

    file: str
    arch: str
    version: str
    sha256: str
    family: str | None = None
    saltenv: str | None = None

    @property
    def url(self) -> str:
        """The URL from which hosts fetch it."""
        return f"salt://{FOLDER}/{self.file}"


Index = Mapping[str, Sequence[Package]]


def read_index(text: str) -> Index:
    """Return a parsed index; raise ValueError if it is malformed."""
    index: dict[str, list[Package]] = wire.read_recorded(dict[str, list[Package]], json.loads(text))
    for package in (entry for packages in index.values() for entry in packages):
        if not _FILE.fullmatch(package.file):
            raise ValueError(f"{package.file!r} is not the name of a file")
        if not _SHA256.fullmatch(package.sha256):
            raise ValueError(f"{package.file} has no SHA-256")
    return index


def format_index(index: Index) -> str:
    """Return the text of an index; raise ValueError if :func:`read_index` would refuse it."""
    data = {
        kind: [
            {key: value for key, value in wire.plain(package).items() if value is not None}
            for package in packages
        ]
        for kind, packages in index.items()
        if packages
    }
    text = json.dumps(data, indent=1, sort_keys=True) + "\n"
    read_index(text)
    return text


def choose_packages(
    index: Index, os: str | None, arch: str | None, *, runs_here: bool, has_systemd: bool
) -> tuple[Package, ...]:
    """
    Return the packages that install a minion in a guest; none if none suits.

    os
        The name of the guest's system by libguestfs.
    runs_here
        Whether the guest's programs can run on this host, as installing its packages needs.
    has_systemd
        Whether the guest has systemd, which the tarball's minion needs.
    """
    name = distribution(os)
    native_kinds = [kind for kind, names in _FAMILIES.items() if name in names and runs_here]
    for kind in (*native_kinds, *([ONEDIR] if has_systemd else [])):
        packages = tuple(package for package in index.get(kind, ()) if package.arch == arch)
        if packages:
            return packages
    return ()


def may_suit(os: str | None, arch: str | None, *, has_systemd: bool) -> bool:
    """Return whether the master can fetch a minion that :func:`choose_packages` may choose."""
    distributions = {name for names in _FAMILIES.values() for name in names}
    return arch in ARCHES and (has_systemd or distribution(os) in distributions)


def remedy(saltenv: str) -> str:
    """Return the remedy for a bad index of an environment: no other one is used instead."""
    if saltenv == BASE:
        return f"have it written anew on the master: {COMMAND}"
    env = f"saltenv={shlex.quote(saltenv)}"
    return (
        f"as saltenv {saltenv} has an index of its own, that of {BASE} is not used instead: have "
        f"it written anew on the master ({COMMAND} {env}), or take it away "
        f"({COMMAND} remove=True {env})"
    )


def distribution(os: str | None) -> str | None:
    """Return the distribution in a system's name by libguestfs, None if that is unknown."""
    name = (os or "").partition(" ")[0]
    return None if name in ("", "some", "unknown") else name


def is_packaged(os: str | None, *, has_systemd: bool) -> bool:
    """
    Return whether a guest's own package manager may find a salt-minion.

    An unknown system without systemd counts as one that may: it may be seeded otherwise.
    """
    name = distribution(os)
    is_old_debian = (os or "").split() in (["debian", "10"], ["debian", "11"])
    return name in _PACKAGED_BY or is_old_debian if name else not has_systemd
