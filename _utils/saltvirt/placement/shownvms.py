"""The answers of hosts about VMs for display; ``wire`` turns them into plain data and back."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from saltvirt.core.wire import default_with
from saltvirt.placement.answers import Count, Words

# The master itself sets these fields: an operator will type the login command.
_OF_MASTER = ("addresses", "addresses_from", "login")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownVm:
    """A VM as in ``virt.full_info``, as far as it is shown."""

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
    """A host's answer to ``virt.full_info``, as far as it is shown."""

    freecpu: int
    freemem: float
    node_info: Node
    vm_info: dict[str, ShownVm]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartOfVm:
    """Some fields of a :class:`ShownVm`, and others on request."""

    cpu: Count = 0
    mem: Count = 0
    state: str = ""
    graphics: dict[str, Any] = field(default_factory=dict)
    disks: dict[str, dict[str, Any]] = field(default_factory=dict)
    nics: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundVms:
    """A host's answer to ``virt.vms``: some of its VMs, and the names of all."""

    freecpu: int
    freemem: float
    node_info: Node
    vm_info: dict[str, PartOfVm]
    names: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedVm:
    """
    A VM as a line of ``salt-run virt.list``.

    mem_mib, disk_mib
        The memory that it has, and the full size of its disks; None if unknown.
    address
        Its address by the leases of libvirt's networks.
    created
        When it was built, in seconds since 1970 by its host's clock.
    """

    state: Words
    cpu: Count = 0
    mem_mib: Count = 0
    disk_mib: Count | None = default_with("disk_mib")
    address: Words | None = default_with("address")
    created: Count | None = default_with("created")


def select_vms(answer: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return a host's answer with some of its VMs, without the fields of the master."""
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
    """A NIC that the VM would have."""

    name: Words
    type: Words
    source: Words | None
    model: Words
    mac: Words


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSeed:
    """The way in which the guest would get its identity."""

    method: Words
    install: Words | None
    install_from: list[Words]
    os: Words | None
    why: Words = ""
    warnings: list[Words] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClonePlan:
    """A host's answer to ``virt.clone`` with ``dry_run=True``."""

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
