"""Whether the libvirt and the QEMU of a host are of a generation that takes a VM."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt.model import Requirements
from saltvirt.placement import wiring
from saltvirt.placement.answers import HostInfo, Machines, NicProfile, Versions

# A host may say any text for a version or a machine type, of any length.
_NUMBERS = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?")
_VERSIONED = re.compile(r"(.*?)([0-9]+(?:\.[0-9]+)+)")
_LONGEST = 100

_TAGGING = (11, 0)
_LOSES_NO_WRITES = (9, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What of a host decides which VMs its libvirt and its QEMU take; ``nic`` are its profiles."""

    arch: str
    versions: Versions
    machines: Mapping[str, Machines]
    nic: Mapping[str, NicProfile] = field(default_factory=dict)


def of(host: HostInfo) -> Generation:
    """Return the :class:`Generation` of a host."""
    return Generation(
        arch=host.cpu.arch,
        versions=host.versions,
        machines=host.machines,
        nic=host.profiles.nic,
    )


def numbers(version: str) -> tuple[int, ...]:
    """
    Return the first two numbers of a version: ``(9, 0)`` of ``9.0.0``.

    What is no version is older than all that are: nothing is believed of whoever says it.
    """
    found = _NUMBERS.match(version)
    return tuple(int(part) for part in found.groups() if part) if found else ()


def loses_writes(domain_type: str, qemu: str | None) -> bool:
    """
    Return whether a guest that goes on while its memory is sent can lose what it writes.

    qemu
        The QEMU that it runs in; None if that is not known.

    Emulation marks a page as written once, and QEMU before 9.0 forgets to have it marked again when
    it has looked at the marks: what is written there after the second look is not sent. With KVM
    the kernel keeps the marks. (QEMU commit 03bfc2188f; seen with 7.2.22, not with 10.0.)
    """
    return domain_type == "qemu" and (qemu is None or numbers(qemu) < _LOSES_NO_WRITES)


def family(name: str) -> tuple[str, tuple[int, ...] | None]:
    """Return ``("pc-q35-", (7, 2))`` of ``pc-q35-7.2``, ``("q35", None)`` of one without one."""
    found = _VERSIONED.fullmatch(name) if len(name) <= _LONGEST else None
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
    return Machines(versions=dict(sorted(ends.items())), names=sorted(names))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def reasons(host: Generation, required: Requirements) -> Iterator[str]:
    """Yield why a generation is the wrong one; nothing of what an older host does not say."""
    yield from machine(host, required)
    yield from _cpu(host, required)
    yield from _tags(host, required)
    libvirt = host.versions.libvirt
    for what, since in required.newer:
        if numbers(libvirt) < numbers(since):
            yield f"it has {what}, which libvirt {libvirt} there does not know ({since} does)"


def machine(host: Generation, required: Requirements) -> Iterator[str]:
    """Yield why a host's QEMU cannot have a VM's machine types, as far as its survey tells."""
    yield from _machine(host, required, required.machine)
    yield from _machine(host, required, required.next_machine, " (of its next start)")


def _machine(
    host: Generation, required: Requirements, name: str | None, note: str = ""
) -> Iterator[str]:
    there = host.machines.get(required.arch or host.arch)
    if not name or not there or name in there.names:
        return
    kind, version = family(name)
    qemu = f"QEMU {'.'.join(host.versions.qemu.split('.')[:2])} there"
    ends = [family(end)[1] or () for end in there.versions.get(kind, ())]
    if version is None or len(ends) != 2:
        yield f"{qemu} does not know the machine type {name}{note}"
        return
    oldest, newest = ends
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


def _tags(host: Generation, required: Requirements) -> Iterator[str]:
    version = host.versions.libvirt
    can_tag = numbers(version) >= _TAGGING
    wanted = wiring.of(required, host.nic.get(required.nic_profile or ""))
    if wanted.is_tagged and not can_tag:
        yield (
            f"libvirt {version} there cannot tag VLANs on a Linux bridge (11.0 can): take a "
            "bridge per VLAN, or virtualport openvswitch"
        )


def _cpu(host: Generation, required: Requirements) -> Iterator[str]:
    qemu = host.versions.qemu
    if required.cpu_qemu and numbers(qemu) < numbers(required.cpu_qemu):
        yield (
            f"it was started with all that QEMU {_dotted(numbers(required.cpu_qemu))} has for a "
            f"CPU (mode maximum or host-passthrough), and QEMU {_dotted(numbers(qemu))} there has "
            "less: stop it first, or give it a CPU model"
        )
