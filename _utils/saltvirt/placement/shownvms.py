"""What hosts say of their VMs to be shown: made of plain data, and made that, by ``wire``."""

from dataclasses import dataclass
from typing import Any

from saltvirt.placement.answers import Count


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
