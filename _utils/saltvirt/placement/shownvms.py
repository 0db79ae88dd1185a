"""What hosts say of their VMs to be shown: made of plain data, and made that, by ``wire``."""

from dataclasses import dataclass, field
from typing import Any

from saltvirt.placement.answers import Count, Words


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
class FoundVms:
    """What a host answers to ``virt.vms``: some of its VMs, and the names of all."""

    freecpu: int
    freemem: float
    node_info: Node
    vm_info: dict[str, dict[str, Any]]
    names: list[str]


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
    xml: str | None
    warnings: list[Words]
