"""
Judge a host's libvirt and QEMU by a table of releases with known security holes.

The table dates from 2026-11. A newer Debian package than those of the table is not judged, as it
may have later fixes.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from saltvirt.checks.audit.auditanswer import ReleaseFacts
from saltvirt.core.findings import Finding


@dataclass(frozen=True, slots=True)
class Hole:
    """
    A security hole of libvirt.

    ends
        The release of libvirt that fixed it.
    package
        The package of one release of Debian that fixed it; empty if none did.
    """

    cve: str
    what: str
    ends: str
    package: str = ""


_U1, _U2, _U3 = "9.0.0-4+deb12u1", "11.3.0-3+deb13u2", "11.3.0-3+deb13u3"
HOLES = (
    Hole("CVE-2023-3750", "storage pools end the daemon", "9.6.0", _U1),
    Hole("CVE-2024-1441", "interfaces end the daemon", "10.1.0", _U1),
    Hole("CVE-2024-2494", "a client ends the daemon", "10.2.0", _U1),
    Hole("CVE-2025-12748", "users with few rights exhaust memory", "11.10.0", _U2),
    Hole("CVE-2025-13193", "any user reads external snapshots of stopped VMs", "11.10.0", _U2),
    Hole("CVE-2026-18917", "a read-only client writes past a buffer", "12.7.0", _U3),
    Hole("CVE-2026-61477", "a network's DNS entries set options of dnsmasq", "12.7.0", _U3),
    Hole("CVE-2026-61478", "XML ends the daemon", "12.7.0", _U3),
    Hole("CVE-2026-63622", "a VM's swtpm takes over files", "12.7.0", _U3),
    Hole("CVE-2026-63623", "any user reads volumes while they are cloned", "12.7.0", _U3),
    Hole("CVE-2026-77158", "a guest's agent ends the daemon", "12.7.0"),
    Hole("CVE-2026-77159", "a VM's swtpm takes over files by its log", "12.7.0"),
)
# The newest packages of Debian that the table knows.
_NEWEST = {"12": "9.0.0-4+deb12u2", "13": _U3}
# QEMU's newest packages of Debian; each fixes dozens of holes, which its changelog names.
_QEMU = {"12": "1:7.2+dfsg-7+deb12u18", "13": "1:10.0.13+ds-0+deb13u1"}
# A host may report any text: limits on versions' length and digits, and on VMs named.
_WIDTH, _DIGITS, _NAMED_VMS = 80, 18, 10
# Before this release, network filters have no effect for a moment whenever a VM starts.
_FILTERS_HOLD = "11.6.0"


def findings(host: str, facts: ReleaseFacts) -> Iterator[Finding]:
    """Yield findings about known holes of a host's libvirt and QEMU."""
    holes = list(_find_open_holes(facts))
    if holes:
        package = _package(facts, "libvirt")
        yield Finding(
            f"libvirt {facts.libvirt[:_WIDTH]}{f' ({package})' if package else ''} has known "
            "holes: " + ", ".join(f"{hole.cve} ({hole.what})" for hole in holes),
            _fix(host, facts, "libvirt-daemon"),
            check="libvirt-release",
        )
    package, fixed_version = _package(facts, "qemu"), _QEMU.get(_debian(facts), "")
    if package and fixed_version and is_older(package, fixed_version):
        yield Finding(
            f"QEMU's package {package} is older than {fixed_version}, which mends known holes that "
            "guests can use",
            _fix(host, facts, "qemu-system-x86")
            + ", then stop and start its VMs, or move them away and back",
            check="qemu-release",
        )


def filters(facts: ReleaseFacts, vms: list[str]) -> Iterator[Finding]:
    """Yield a finding if network filters of a host's VMs have moments without effect."""
    if vms and is_older(facts.libvirt, _FILTERS_HOLD):
        yield Finding(
            f"libvirt {facts.libvirt[:_WIDTH]} makes the base of all network filters anew "
            f"whenever a VM starts, and for that moment those of {_list_vms(vms)} do not hold",
            f"libvirt {_FILTERS_HOLD[:-2]} or later; until then do not rely on filters alone "
            "(docs/networking.md)",
            check="filter-window",
        )


def _list_vms(vms: list[str]) -> str:
    hidden_count = len(vms) - _NAMED_VMS
    return ", ".join(vms[:_NAMED_VMS]) + (f" and {hidden_count} more" if hidden_count > 0 else "")


def _debian(facts: ReleaseFacts) -> str:
    """Return a host's release of Debian, empty for another distribution."""
    name, _space, release = facts.distribution.partition(" ")
    return release if name == "debian" else ""


def _package(facts: ReleaseFacts, begin: str) -> str:
    """Return the version of a host's first package with a prefix, empty if there is none."""
    versions = (
        version for name, version in sorted(facts.packages.items()) if name.startswith(begin)
    )
    return next(versions, "")[:_WIDTH]


def _find_open_holes(facts: ReleaseFacts) -> Iterator[Hole]:
    debian, package = _debian(facts), _package(facts, "libvirt")
    newest_known = _NEWEST.get(debian, "") if package else ""
    if newest_known and is_older(newest_known, package):
        return
    for hole in HOLES:
        is_packaged = newest_known and f"+deb{debian}u" in hole.package
        is_fixed = is_packaged and not is_older(package, hole.package)
        if is_older(facts.libvirt, hole.ends) and not is_fixed:
            yield hole


def _fix(host: str, facts: ReleaseFacts, package: str) -> str:
    if facts.packages:
        return (
            f"salt {shlex.quote(host)} pkg.install {package} refresh=True, if there is a newer one"
        )
    return (
        "update it there; if the distribution has mended these in a package of the same number, "
        "its changelog names them"
    )


def is_older(version: str, other_version: str) -> bool:
    """Return whether a version is older than another, as dpkg orders them."""
    return _key(version) < _key(other_version)


def _key(version: str) -> tuple[int, list[tuple[list[int], int]], list[tuple[list[int], int]]]:
    epoch, colon, without_epoch = version.rpartition(":")
    upstream, hyphen, revision = without_epoch.rpartition("-")
    upstream, revision = (upstream, revision) if hyphen else (revision, "")
    return (int(epoch) if colon and epoch.isdecimal() else 0, _parts(upstream), _parts(revision))


def _parts(text: str) -> list[tuple[list[int], int]]:
    """Split a part of a version into pairs of a text without digits and a number."""
    parts = re.findall(r"([^0-9]*)([0-9]*)", text[:_WIDTH])
    # dpkg sorts a tilde before the end of a text, and letters before other signs.
    return [([*map(_rank, word), 0], int(number[:_DIGITS] or 0)) for word, number in parts]


def _rank(sign: str) -> int:
    return -1 if sign == "~" else ord(sign) if sign.isalpha() else ord(sign) + 256
