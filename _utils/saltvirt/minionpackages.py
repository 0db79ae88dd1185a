"""
Salt's minion for guests that have none: what lies of it on the file server, and what suits a guest.

The master puts it there, with an index that says which file is for which guest; hosts read that.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from saltvirt import wire

FOLDER = "salt-virt/minion"
INDEX = "index.json"
COMMAND = "salt-run virt_image.minion_packages"
# What a guest prints on its console when it has no minion and could not install one.
NO_MINION = (
    "salt-virt: there is no salt-minion in this image, and the package manager could not install "
    "one; use an image that has it"
)
# The environment whose minions guests get if that of their image has none for them.
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
# Those whose own repositories have a salt-minion: Arch and Fedora package Salt themselves, and SUSE
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
        Whose packages it is one of, ``deb`` or ``rpm``; None for any system with systemd.
    saltenv
        Where it is on the file server, if that is not the environment of the image.
    """

    file: str
    arch: str
    version: str
    sha256: str
    family: str | None = None
    saltenv: str | None = None

    @property
    def url(self) -> str:
        """Where hosts fetch it."""
        return f"salt://{FOLDER}/{self.file}"


Index = Mapping[str, Sequence[Package]]


def read_index(text: str) -> Index:
    """Return what an index says; raise ValueError if it cannot be understood."""
    index: dict[str, list[Package]] = wire.read_recorded(dict[str, list[Package]], json.loads(text))
    for package in (entry for packages in index.values() for entry in packages):
        if not _FILE.fullmatch(package.file):
            raise ValueError(f"{package.file!r} is not the name of a file")
        if not _SHA256.fullmatch(package.sha256):
            raise ValueError(f"{package.file} has no SHA-256")
    return index


def format_index(index: Index) -> str:
    """Return the text of an index; raise ValueError if :func:`read` would not take it."""
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
    Return the files by which a guest gets its minion, none if there are none for it.

    os
        What libguestfs calls the guest's system.
    runs_here
        The guest's programs can run on this host, as installing its packages needs.
    has_systemd
        The tarball's minion is a unit of systemd.
    """
    name = distribution(os)
    native_kinds = [kind for kind, names in _FAMILIES.items() if name in names and runs_here]
    for kind in (*native_kinds, *([ONEDIR] if has_systemd else [])):
        packages = tuple(package for package in index.get(kind, ()) if package.arch == arch)
        if packages:
            return packages
    return ()


def may_suit(os: str | None, arch: str | None, *, has_systemd: bool) -> bool:
    """Return whether the master can fetch a minion for a guest, as :func:`chosen` takes it."""
    distributions = {name for names in _FAMILIES.values() for name in names}
    return arch in ARCHES and (has_systemd or distribution(os) in distributions)


def remedy(saltenv: str) -> str:
    """Return what helps against what an environment has wrong: nothing is taken from another."""
    if saltenv == BASE:
        return f"have it written anew on the master: {COMMAND}"
    env = f"saltenv={shlex.quote(saltenv)}"
    return (
        f"as saltenv {saltenv} has an index of its own, that of {BASE} is not used instead: have "
        f"it written anew on the master ({COMMAND} {env}), or take it away "
        f"({COMMAND} remove=True {env})"
    )


def distribution(os: str | None) -> str | None:
    """Return a distribution's name of what libguestfs calls a system, None if it knows none."""
    name = (os or "").partition(" ")[0]
    return None if name in ("", "some", "unknown") else name


def is_packaged(os: str | None, *, has_systemd: bool) -> bool:
    """
    Return whether a guest's own package manager may find a salt-minion.

    Of a small system that is no distribution nobody can say, and it may take its seed otherwise.
    """
    name = distribution(os)
    is_old_debian = (os or "").split() in (["debian", "10"], ["debian", "11"])
    return name in _PACKAGED_BY or is_old_debian if name else not has_systemd
