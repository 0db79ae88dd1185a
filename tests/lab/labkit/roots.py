"""The roots: Debian as it is installed, one per release, and the workshop in which tests run."""

import inspect
import re
import shutil
import subprocess
from pathlib import Path

from labkit import layers
from labkit.run import run
from labkit.settings import CACHE, RELEASES, LabError

# A Debian host as its installer leaves it, with each of the three that can keep its network.
_HOST = (
    "systemd-sysv",
    "systemd-timesyncd",
    "libpam-systemd",
    "dbus",
    "udev",
    "kmod",
    "iproute2",
    "iputils-ping",
    "procps",
    "passwd",
    "login",
    "openssl",
    "ca-certificates",
    "nftables",
    "ifupdown",
    "network-manager",
    "curl",
    "less",
    "python3",
    "python3-apt",
    "libsqlite3-0",
    "libexpat1",
    "libffi8",
    "zlib1g",
    "libbz2-1.0",
    "liblzma5",
    "debconf",
    "linux-image-cloud-amd64",
)
# Who asks for leases under ifupdown.
_DHCP = {"bookworm": "isc-dhcp-client", "trixie": "isc-dhcp-client", "sid": "dhcpcd-base"}
# What tests and image recipes need of a machine; none of it is installed on the user's own.
_WORKSHOP = (
    "python3-venv",
    "python3-dev",
    "gcc",
    "pkg-config",
    "patchelf",
    "libvirt-dev",
    "libvirt-clients",
    "libvirt0",
    "qemu-utils",
    "qemu-system-x86",
    "python3-guestfs",
    "guestmount",
    "libxml2-utils",
    "extlinux",
    "syslinux-common",
    "cpio",
    "fdisk",
    "e2fsprogs",
    "busybox-static",
    "xfsprogs",
    "btrfs-progs",
    "lvm2",
    "iptables",
    "gnutls-bin",
    "apt-utils",
    "mmdebstrap",
    "git",
    "ganeti-htools",
    "netplan.io",
    "dnsmasq-base",
    "bridge-utils",
    "make",
    "util-linux",
    "rsync",
)
APT = (
    "export DEBIAN_FRONTEND=noninteractive; printf '#!/bin/sh\\nexit 101\\n' "
    ">/usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d; apt-get update -qq; "
    "apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-unsafe-io {}; "
    "apt-get clean; rm -rf /usr/sbin/policy-rc.d /var/lib/apt/lists/* /var/log/apt "
    "/var/log/dpkg.log"
)


def mirror(folder=Path("/etc/apt")):
    """Return the address of this machine's own Debian mirror, or Debian's."""
    for path in [*folder.glob("sources.list"), *sorted(folder.glob("sources.list.d/*"))]:
        text = path.read_text(errors="replace")
        entries = _one_line(text) if path.suffix == ".list" else _stanzas(text)
        for address, suite, components in entries:
            if suite in RELEASES and "main" in components:
                return address.rstrip("/")
    return "http://deb.debian.org/debian"


def _one_line(text):
    """Return the address, the suite and the components of each entry of a sources.list."""
    found = re.findall(r"^\s*deb\s+(?:\[[^\]]*\]\s*)?(https?://\S+)\s+(\S+)\s+(.*)$", text, re.M)
    return [(address, suite, words.split()) for address, suite, words in found]


def _stanzas(text):
    """Return the same of a file of stanzas, as deb822 has them."""
    rows = [line for line in text.splitlines() if not line.startswith("#")]
    out = []
    for stanza in "\n".join(rows).split("\n\n"):
        fields = dict(re.findall(r"^(\w+):[ \t]*(.*)$", stanza, re.M))
        for address in fields.get("URIs", "").split():
            if address.startswith(("http:", "https:")) and "deb" in fields.get("Types", "").split():
                out += [
                    (address, suite, fields.get("Components", "").split())
                    for suite in fields.get("Suites", "").split()
                ]
    return out


def apt_options():
    """Return this machine's settings for a mirror that lags behind."""
    said = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False)
    lines = said.stdout.splitlines() if not said.returncode else []
    keys = (
        "Acquire::Check-Valid-Until",
        "Acquire::Check-Date",
        "Acquire::http::Proxy",
        "Acquire::https::Proxy",
    )
    return [f"--aptopt={line}" for line in lines if line.startswith(keys)]


def base(release):
    """Return the stack of a Debian release."""
    if not shutil.which("mmdebstrap"):
        raise LabError("mmdebstrap is missing: apt-get install mmdebstrap")

    def build(part):
        part.rmdir()
        left_out = ("man", "doc", "locale")
        options = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in left_out]
        options += ["--dpkgopt=force-unsafe-io", "--mode=root", "--format=dir", "--variant=minbase"]
        # What the base system is made of, and no more: Salt's user as Salt's packages make it.
        user = "useradd --root $1 --system --home-dir /opt/saltstack/salt --shell /usr/sbin/nologin"
        services = (
            "NetworkManager",
            "networking",
            "wpa_supplicant",
            "nftables",
            "NetworkManager-wait-online",
            "systemd-networkd",
        )
        hooks = [
            f"--customize-hook={user} --user-group salt",
            f"--customize-hook=chroot $1 systemctl -q disable {' '.join(services)} || true",
            "--customize-hook=rm -rf $1/var/lib/apt/lists/* $1/etc/machine-id $1/etc/hostname",
            "--customize-hook=rm -f $1/etc/resolv.conf $1/etc/network/interfaces",
        ]
        included = ",".join([*_HOST, _DHCP[release]])
        argv = [
            "mmdebstrap",
            "--quiet",
            f"--include={included}",
            *options,
            *apt_options(),
            *hooks,
            release,
            part,
            mirror(),
        ]
        run(
            [*layers.ALONE, "--mount-proc", *argv],
            log=CACHE / f"{release}.log",
            env={**layers.passed_on(), "INITRD": "No"},
        )

    recipe = [*_HOST, inspect.getsource(build), release]
    return layers.ensure(release, recipe, build, what=f"a root of Debian {release}")


def workshop():
    """Return the stack in which images are built and tests run."""
    recipe = APT.format(" ".join(_WORKSHOP)) + "; echo workshop >/etc/hostname"
    return layers.add(
        "workshop", recipe, base("bookworm"), "the workshop, where tests run and images are made"
    )
