"""Whether the libvirt and the QEMU of a host are of a generation that takes a VM."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from saltvirt.model import Requirements
from saltvirt.placement.facts import HostInfo, Machines

_VERSIONED = re.compile(r"(.*?)(\d+(?:\.\d+)+)")

_TAGGING = (11, 0)


def numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version: ``(9, 0)`` of ``9.0.0``."""
    return tuple(int(part) for part in version.split(".")[:2])


def family(name: str) -> tuple[str, tuple[int, ...] | None]:
    """Return ``("pc-q35-", (7, 2))`` of ``pc-q35-7.2``, ``("q35", None)`` of one without one."""
    found = _VERSIONED.fullmatch(name)
    if not found:
        return name, None
    return found[1], tuple(int(part) for part in found[2].split("."))


def known(guests: Iterable[Mapping[str, Any]], arch: str) -> dict[str, Machines]:
    """
    Return which machine types a host knows: ``{arch: {"versions", "names"}}``.

    guests
        Those of :func:`saltvirt.xml.capabilities.read`.
    arch
        The host's own. Of others only those are listed that have the same machine types: an
        emulator of boards would multiply the answer, and hardly ever has a VM.

    ``versions`` is ``{family: [oldest, newest]}``, as QEMU leaves no gaps; ``names`` are those
    without a version.
    """
    listed = {guest["arch"]: set(guest["machines"]) for guest in guests}
    own = listed.get(arch)
    return {one: _summary(own) for one, machines in listed.items() if own and machines == own}


def _summary(machines: Iterable[str]) -> Machines:
    versions: dict[str, list[tuple[int, ...]]] = {}
    names = []
    for one in machines:
        kind, version = family(one)
        if version is None:
            names.append(one)
        else:
            versions.setdefault(kind, []).append(version)
    ends = {kind: [_dotted(min(all_)), _dotted(max(all_))] for kind, all_ in versions.items()}
    return {"versions": dict(sorted(ends.items())), "names": sorted(names)}


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def reasons(host: HostInfo, need: Requirements) -> Iterator[str]:
    """Yield why a host is of the wrong generation; nothing of what an older host does not say."""
    yield from machine(host, need)
    yield from _cpu(host, need)
    yield from _tags(host, need)
    libvirt = host["versions"]["libvirt"]
    for what, since in need.newer:
        if numbers(libvirt) < numbers(since):
            yield f"it has {what}, which libvirt {libvirt} there does not know ({since} does)"


def machine(host: HostInfo, need: Requirements) -> Iterator[str]:
    """Yield why a host's QEMU cannot have a VM's machine types, as far as its survey tells."""
    yield from _machine(host, need, need.machine)
    yield from _machine(host, need, need.next_machine, " (of its next start)")


def _machine(host: HostInfo, need: Requirements, name: str | None, note: str = "") -> Iterator[str]:
    there = host.get("machines", {}).get(need.arch or host["cpu"]["arch"])
    if not name or not there or name in there["names"]:
        return
    kind, version = family(name)
    qemu = f"QEMU {'.'.join(host['versions']['qemu'].split('.')[:2])} there"
    if version is None or kind not in there["versions"]:
        yield f"{qemu} does not know the machine type {name}{note}"
        return
    oldest, newest = (family(end)[1] or () for end in there["versions"][kind])
    if version > newest:
        yield (
            f"its machine type {name}{note} is newer than {qemu} knows (up to "
            f"{kind}{_dotted(newest)})"
        )
    elif version < oldest:
        yield (
            f"its machine type {name}{note} is older than {qemu} knows (from "
            f"{kind}{_dotted(oldest)} on)"
        )


def _tags(host: HostInfo, need: Requirements) -> Iterator[str]:
    profile = host["profiles"]["nic"].get(need.nic_profile or "", {}) if "profiles" in host else {}
    version = host["versions"]["libvirt"]
    can_tag = numbers(version) >= _TAGGING
    if (need.bridge_vlans or profile.get("bridge_vlans")) and not can_tag:
        yield (
            f"libvirt {version} there cannot tag VLANs on a Linux bridge (11.0 can): take a "
            "bridge per VLAN, or virtualport openvswitch"
        )


def _cpu(host: HostInfo, need: Requirements) -> Iterator[str]:
    qemu = host["versions"]["qemu"]
    if need.cpu_qemu and numbers(qemu) < numbers(need.cpu_qemu):
        yield (
            f"it was started with all that QEMU {_dotted(numbers(need.cpu_qemu))} has for a CPU "
            f"(mode maximum or host-passthrough), and QEMU {_dotted(numbers(qemu))} there has "
            "less: stop it first, or give it a CPU model"
        )
