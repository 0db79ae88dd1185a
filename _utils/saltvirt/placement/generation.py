"""Whether the libvirt and the QEMU of a host are of a generation that can run a VM."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt.core.model import Requirements
from saltvirt.placement import wiring
from saltvirt.placement.answers import HostInfo, Machines, NicProfile, Versions

# A host may send any text, of any length, as a version or a machine type.
_NUMBERS = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?")
_VERSIONED = re.compile(r"(.*?)([0-9]+(?:\.[0-9]+)+)")
_LONGEST = 100

_TAGGING = (11, 0)
_LOSES_NO_WRITES = (9, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The facts that decide which VMs a host's libvirt and QEMU take; ``nic`` are its profiles."""

    arch: str
    versions: Versions
    machines: Mapping[str, Machines]
    nic: Mapping[str, NicProfile] = field(default_factory=dict)


def for_host(host: HostInfo) -> Generation:
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

    An invalid version counts as older than all others: its sender is not trusted.
    """
    match = _NUMBERS.match(version)
    return tuple(int(part) for part in match.groups() if part) if match else ()


def loses_writes(domain_type: str, qemu: str | None) -> bool:
    """
    Return whether a guest that runs while its memory is sent can lose what it writes.

    qemu
        The QEMU that it runs in; None if that is unknown.

    Emulation marks a written page once, and QEMU before 9.0 does not have it marked again after it
    has read the marks: a write to that page after the second reading is not sent. With KVM the
    kernel keeps the marks. (QEMU commit 03bfc2188f; seen with 7.2.22, not with 10.0.)
    """
    return domain_type == "qemu" and (qemu is None or numbers(qemu) < _LOSES_NO_WRITES)


def family(name: str) -> tuple[str, tuple[int, ...] | None]:
    """Return ``("pc-q35-", (7, 2))`` of ``pc-q35-7.2``, ``("q35", None)`` without a version."""
    match = _VERSIONED.fullmatch(name) if len(name) <= _LONGEST else None
    if not match:
        return name, None
    return match[1], tuple(int(part) for part in match[2].split("."))


def summarize_machines(guests: Iterable[Mapping[str, Any]], arch: str) -> dict[str, Machines]:
    """
    Return the machine types of a host: ``{arch: {"versions", "names"}}``.

    guests
        Those of :func:`saltvirt.xml.node.capabilities.read`.
    arch
        The host's own. Others are listed only if they have the same machine types: an emulator of
        boards would multiply the answer, and hardly ever has a VM.

    ``versions`` is ``{family: [oldest, newest]}``, as QEMU leaves no gaps; ``names`` are those
    without a version.
    """
    machines_by_arch = {guest["arch"]: set(guest["machines"]) for guest in guests}
    own_machines = machines_by_arch.get(arch)
    return {
        guest_arch: _summary(own_machines)
        for guest_arch, machines in machines_by_arch.items()
        if own_machines and machines == own_machines
    }


def _summary(machines: Iterable[str]) -> Machines:
    versions: dict[str, list[tuple[int, ...]]] = {}
    names = []
    for name in machines:
        kind, version = family(name)
        if version is None:
            names.append(name)
        else:
            versions.setdefault(kind, []).append(version)
    ends = {kind: [_dotted(min(all_)), _dotted(max(all_))] for kind, all_ in versions.items()}
    return Machines(versions=dict(sorted(ends.items())), names=sorted(names))


# The family of the machine types that libvirt chooses from, by architecture.
_USUAL_FAMILIES = {
    "x86_64": "pc-i440fx-",
    "i686": "pc-i440fx-",
    "aarch64": "virt-",
    "riscv64": "virt-",
    "ppc64le": "pseries-",
    "s390x": "s390-ccw-virtio-",
}
# The last minor releases of QEMU's major ones; of later ones the last is 2.
_LAST_MINORS = {0: 15, 1: 7, 2: 12, 3: 1}
# Names of these families: a host that is asked about them reports the oldest and the newest.
USUAL_MACHINES = tuple(sorted({f"{usual_family}1.0" for usual_family in _USUAL_FAMILIES.values()}))


def find_common_machine(hosts: Mapping[str, HostInfo], arch: str) -> str | None:
    """
    Return the newest machine type that hosts of different QEMUs have in common.

    Returns None if the hosts' newest types are the same, so that each host's own choice suits all,
    or if there is none in common. A host without types of the usual family does not count.
    """
    usual_family = _USUAL_FAMILIES.get(arch, "")
    ends = [
        [family(end)[1] or () for end in machines.versions.get(usual_family, ())]
        for host in hosts.values()
        if (machines := host.machines.get(arch))
    ]
    # A host could otherwise make up a version that no other host knows.
    ends = [end for end in ends if len(end) == 2 and all(map(_is_release, end))]
    oldest, newest = [end[0] for end in ends], [end[1] for end in ends]
    if len(set(newest)) < 2 or min(newest) < max(oldest):
        return None
    return f"{usual_family}{_dotted(min(newest))}"


def _is_release(version: tuple[int, ...]) -> bool:
    """Return whether QEMU has, or may have, a release of this number."""
    if len(version) != 2:
        return False
    major, minor = version
    return minor <= _LAST_MINORS.get(major, 2)


def has_usual_machines(host: HostInfo, arch: str) -> bool:
    """Return whether a host has versioned machine types of the usual family."""
    machines = host.machines.get(arch)
    return machines is not None and _USUAL_FAMILIES.get(arch, "") in machines.versions


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def reasons(host: Generation, required: Requirements) -> Iterator[str]:
    """Yield why a generation does not suit a VM."""
    yield from machine_reasons(host, required)
    yield from _cpu_reasons(host, required)
    yield from _tag_reasons(host, required)
    libvirt = host.versions.libvirt
    for feature, since in required.newer:
        if numbers(libvirt) < numbers(since):
            yield f"it has {feature}, which libvirt {libvirt} there does not know ({since} does)"


def machine_reasons(host: Generation, required: Requirements) -> Iterator[str]:
    """Yield why a host's QEMU lacks a VM's machine types, as far as the host's answer has them."""
    yield from _machine_type_reasons(host, required, required.machine)
    yield from _machine_type_reasons(host, required, required.next_machine, " (of its next start)")


def _machine_type_reasons(
    host: Generation, required: Requirements, name: str | None, note: str = ""
) -> Iterator[str]:
    machines = host.machines.get(required.arch or host.arch)
    if not name or not machines or name in machines.names:
        return
    kind, version = family(name)
    qemu = f"QEMU {'.'.join(host.versions.qemu.split('.')[:2])} there"
    ends = [family(end)[1] or () for end in machines.versions.get(kind, ())]
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


def _tag_reasons(host: Generation, required: Requirements) -> Iterator[str]:
    version = host.versions.libvirt
    can_tag = numbers(version) >= _TAGGING
    required_wiring = wiring.for_vm(required, host.nic.get(required.nic_profile or ""))
    if required_wiring.is_tagged and not can_tag:
        yield (
            f"libvirt {version} there cannot tag VLANs on a Linux bridge (11.0 can): take a "
            "bridge per VLAN, or virtualport openvswitch"
        )


def _cpu_reasons(host: Generation, required: Requirements) -> Iterator[str]:
    qemu = host.versions.qemu
    if required.cpu_qemu and numbers(qemu) < numbers(required.cpu_qemu):
        yield (
            f"it was started with all that QEMU {_dotted(numbers(required.cpu_qemu))} has for a "
            f"CPU (mode maximum or host-passthrough), and QEMU {_dotted(numbers(qemu))} there has "
            "less: stop it first, or give it a CPU model"
        )
