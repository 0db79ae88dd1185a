"""What the lab needs on the machine: Debian packages and Python environments."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

from labkit.run import run
from labkit.say import say
from labkit.settings import CACHE, SALTS, LabError

PACKAGES = {
    "libvirt-daemon": "libvirtd itself",
    "libvirt-daemon-system": "its configuration",
    "libvirt-daemon-system-sysv": "init scripts, for hosts on which the formula starts libvirtd",
    "libvirt-daemon-config-nwfilter": "its filters against forged addresses",
    "libvirt-clients": "virsh and virt-xml-validate",
    "libxml2-utils": "xmllint, which virt-xml-validate calls",
    "libvirt-dev": "to build libvirt-python",
    "qemu-system-x86": "the emulator",
    "qemu-utils": "qemu-img",
    "python3-guestfs": "libguestfs' binding, to look into images",
    "guestmount": "libguestfs' mounting, for guestfs.mount",
    "mmdebstrap": "the Debian image",
    "linux-image-cloud-amd64": "the kernel of the tiny image",
    "busybox-static": "the user land of the tiny image",
    "extlinux": "the boot loader of the images",
    "syslinux-common": "its master boot record",
    "cpio": "initial RAM disks",
    "fdisk": "partition tables",
    "e2fsprogs": "file systems",
    "tini": "process 1 of each node",
    "xfsprogs": "a file system with reflinks, for its test",
    "dnsmasq-base": "addresses for the guests",
    "nftables": "the hosts' firewall",
    "iptables": "the hosts' other firewall",
    "ifupdown": "one of the managers of networks that keep a bridge",
    "bridge-utils": "what ifupdown needs for bridges",
    "iproute2": "links and bridges",
    "procps": "ps and pgrep",
    "openssl": "minion keys of the lab's hosts",
    "gnutls-bin": "certtool, which virt-pki-validate calls",
    "python3-venv": "Python environments",
    "python3-dev": "to build libvirt-python",
    "gcc": "to build libvirt-python",
    "pkg-config": "to build libvirt-python",
}
PYTHON_EXTRAS = ["libvirt-python==9.0.0", "pycdlib>=1.14", "pyroute2>=0.7"]


@contextmanager
def locked(name):
    """Hold a lock of the cache, so that two labs do not build the same thing at once."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def missing_packages():
    """Return the Debian packages that are not installed, in order."""
    query = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n", *PACKAGES]
    found = subprocess.run(query, capture_output=True, text=True, check=False).stdout
    there = {line.split()[0] for line in found.splitlines() if line.split()[1:2] == ["ii"]}
    return [package for package in PACKAGES if package not in there]


def install_packages():
    """Install what is missing with apt-get."""
    if os.geteuid() != 0:
        raise LabError("the lab makes namespaces and starts libvirtd: run it as root")
    with locked("apt"):
        wanted = missing_packages()
        if not wanted:
            return
        if not shutil.which("apt-get"):
            raise LabError(f"no apt-get here; install these by hand: {' '.join(wanted)}")
        say(f"installing {len(wanted)} Debian packages: {' '.join(wanted)}")
        environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        # A policy that starts no service: the packages would start a libvirtd of the machine's own.
        with no_services():
            run(["apt-get", "update", "-qq"], env=environment)
            install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends"]
            run([*install, *wanted], env=environment, log=CACHE / "apt.log")


def unpacked(packages):
    """
    Return a folder with the files of Debian packages that are not to be installed.

    A manager of networks that is installed takes over this machine's links at its next start.
    """
    folder = CACHE / f"unpacked-{packages[0]}"
    with locked("apt"):
        if not folder.exists():
            part = folder.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            subprocess.run(["apt-get", "download", "-qq", *packages], cwd=part, check=True,
                           capture_output=True)  # fmt: skip
            for archive in sorted(part.glob("*.deb")):
                run(["dpkg-deb", "-x", archive, part])
            part.rename(folder)
    return folder


@contextmanager
def no_services():
    """Keep package scripts from starting services while the block runs."""
    policy = Path("/usr/sbin/policy-rc.d")
    if policy.exists():
        yield
        return
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    try:
        yield
    finally:
        policy.unlink()


def install_venv(name, requirements, python="/usr/bin/python3"):
    """Return the folder of a virtual environment with these requirements, made if missing."""
    venv = CACHE / name
    wanted = hashlib.sha256("\n".join(requirements).encode()).hexdigest()
    stamp = venv / "saltvirt-requirements"
    with locked(name):
        if stamp.exists() and stamp.read_text() == wanted:
            return venv
        say(f"making the Python environment {name}: {' '.join(requirements)}")
        shutil.rmtree(venv, ignore_errors=True)
        run([python, "-m", "venv", venv])
        run([venv / "bin" / "pip", "install", "-q", *requirements], log=CACHE / f"{name}.log")
        stamp.write_text(wanted)
    return venv


def install_salt(lab):
    """Make the environment with this lab's Salt."""
    return install_venv(lab.venv.name, [SALTS[lab.salt], *PYTHON_EXTRAS])
