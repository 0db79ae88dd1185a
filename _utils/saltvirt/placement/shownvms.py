"""What hosts say of their VMs to be shown: made of plain data, and made that, by ``wire``."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt.placement.answers import Count, Words

# How to log into a VM the master says itself: somebody will type it.
_OF_MASTER = ("addresses", "addresses_from", "login")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownVm:
    """A VM as ``virt.full_info`` tells it, as far as it is shown."""

    cpu: Count
    mem: Count
    state: str
    graphics: dict[str, Any]
    disks: dict[str, dict[str, Any]]
    nics: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A host's own processors and memory in MiB, as far as they are shown."""

    cpus: Count
    phymemory: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class FullInfo:
    """What a host answers to ``virt.full_info``, as far as it is shown."""

    freecpu: int
    freemem: float
    node_info: Node
    vm_info: dict[str, ShownVm]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOfVm:
    """Some fields of a :class:`ShownVm`, and others that may be asked for."""

    cpu: Count = 0
    mem: Count = 0
    state: str = ""
    graphics: dict[str, Any] = field(default_factory=dict)
    disks: dict[str, dict[str, Any]] = field(default_factory=dict)
    nics: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundVms:
    """What a host answers to ``virt.vms``: some of its VMs, and the names of all."""

    freecpu: int
    freemem: float
    node_info: Node
    vm_info: dict[str, PartOfVm]
    names: list[str]


def select_vms(answer: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return what a host says of itself and of some of its VMs, but for what is the master's."""
    vms = {
        name: {
            key: value for key, value in answer["vm_info"][name].items() if key not in _OF_MASTER
        }
        for name in names
    }
    return {**{key: value for key, value in answer.items() if key != "names"}, "vm_info": vms}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDisk:
    """A disk that a host would make."""

    name: Words
    target: Words
    device: Words
    path: Words | None
    format: Words | None
    size_mib: Count | None
    image: Words | None = None
    made: Words | None = None
    base: Words | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNic:
    """A NIC that it would have."""

    name: Words
    type: Words
    source: Words | None
    model: Words
    mac: Words


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSeed:
    """How its guest would get its identity."""

    method: Words
    install: Words | None
    install_from: list[Words]
    os: Words | None
    why: Words = ""
    warnings: list[Words] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClonePlan:
    """What a host answers to ``virt.clone`` with ``dry_run=True``."""

    source: Words
    name: Words
    domain_type: Words
    arch: Words | None
    vcpus: Count
    memory_mib: Count
    disks: list[PlannedDisk]
    nics: list[PlannedNic]
    seed: PlannedSeed | None
    files: list[Words]
    to_fetch: list[Words]
    start: bool
    autostart: bool = False
    xml: str | None
    warnings: list[Words]
