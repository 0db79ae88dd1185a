"""Packages kept for hosts without the internet: Debian's per release, and Python's.

``segment`` serves them to the lab's hosts; ``hypervisors`` installs from them in a chroot.
"""

import shutil
from pathlib import Path

from labkit import layers, roots
from labkit.say import say
from labkit.settings import CACHE

MIRROR = CACHE / "mirror"
# What the formula or a test installs on a host of the lab.
_DEBIAN = (
    "libvirt-daemon-system",
    "libvirt-daemon-config-nwfilter",
    "libvirt-clients",
    "qemu-utils",
    "qemu-system-x86",
    "dnsmasq-base",
    "gcc",
    "libc6-dev",
    "pkg-config",
    "libvirt-dev",
    "nftables",
    "iptables",
    "iptables-persistent",
    "firewalld",
    "bridge-utils",
    "python3-guestfs",
    "guestmount",
    "python3-libvirt",
    "python3-pycdlib",
    "python3-pyroute2",
    "xfsprogs",
    "libxml2-utils",
    "gnutls-bin",
    "mmdebstrap",
    "python3-venv",
)
_PYTHON = ("libvirt-python", "pycdlib", "pyroute2", "setuptools<80", "wheel")
_DOWNLOAD = """
apt-get update -qq
apt-get install -y -qq --no-install-recommends --download-only {}
mkdir -p /kept
mv /var/cache/apt/archives/*.deb /kept/
"""
_INDEX = "cd $1 && apt-ftparchive packages . >Packages"
_PIP = "cd $1 && python3 -m venv /tmp/v && /tmp/v/bin/pip download -q -d . {}"


def debian(release):
    """Make sure of the Debian packages of a release; return their folder."""
    recipe = _DOWNLOAD.format(" ".join(_DEBIAN))
    below = roots.base(release)

    def build(part):
        scratch = part.with_suffix(".scratch")
        layers.in_chroot(
            below,
            ["sh", "-euc", recipe],
            scratch=scratch,
            log=CACHE / "mirror.log",
            DEBIAN_FRONTEND="noninteractive",
        )
        part.rmdir()
        (scratch / "upper/kept").rename(part)
        shutil.rmtree(scratch)
        _in_workshop(_INDEX, part)

    folder = layers.ensure(
        f"debs-{release}", [recipe], build, below, f"a mirror of Debian {release}'s packages"
    )[0]
    _link(release, folder)
    return folder


def pypi():
    """Make sure of the Python packages; return their folder."""
    recipe = _PIP.format(" ".join(f"'{name}'" for name in _PYTHON))

    def build(part):
        _in_workshop(recipe, part)

    folder = layers.ensure("pypi", [recipe], build, what="a mirror of Python packages")[0]
    _link("pypi", folder)
    return folder


def _in_workshop(script, folder):
    scratch = folder.with_suffix(".workshop")
    layers.in_chroot(
        roots.workshop(),
        ["sh", "-euc", script, "sh", folder],
        scratch=scratch,
        log=CACHE / "mirror.log",
        BINDS=str(folder),
    )
    shutil.rmtree(scratch)


def _link(name, folder):
    """Let the mirror serve a folder under a name that stays."""
    link, part = MIRROR / name, MIRROR / f".{name}"
    goal = Path("..", folder.relative_to(CACHE))
    with layers.locked("mirror"):
        MIRROR.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink() or link.readlink() != goal:
            part.unlink(missing_ok=True)
            part.symlink_to(goal)
            part.rename(link)
            say(f"the mirror serves {name}")
