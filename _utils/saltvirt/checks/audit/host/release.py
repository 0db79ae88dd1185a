"""Read which releases of libvirt and QEMU this host runs, and from which packages."""

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saltvirt.checks.audit.auditanswer import ReleaseFacts
from saltvirt.checks.audit.host.conffiles import FileReader
from saltvirt.libvirt import hostfacts

_DPKG = Path("/var/lib/dpkg/status")
# Debian's packages with the code of a daemon or an emulator.
_PACKAGES = ("libvirt-daemon", "libvirt0", "qemu-system-x86", "qemu-system-arm")


def read_releases(reader: FileReader, conn: Any) -> ReleaseFacts:
    """Return the releases of this host."""
    no_packages: dict[str, str] = {}
    return ReleaseFacts(
        distribution=_distribution(),
        libvirt=str(hostfacts.versions(conn)["libvirt"]),
        packages=reader.at(_DPKG, _read_packages, no_packages),
    )


def _distribution() -> str:
    try:
        os_release: Mapping[str, str] = platform.freedesktop_os_release()
    except OSError:
        return ""
    return f"{os_release.get('ID', '')} {os_release.get('VERSION_ID', '')}".strip()


def _read_packages(path: Path) -> dict[str, str]:
    """Return the versions of ``_PACKAGES`` that dpkg has on record as installed."""
    out, package, is_installed = {}, "", False
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            key, _colon, value = line.rstrip("\n").partition(": ")
            if key == "Package":
                package, is_installed = value, False
            elif key == "Status":
                is_installed = value.endswith(" installed")
            elif key == "Version" and is_installed and package in _PACKAGES:
                out[package] = value
    return out
