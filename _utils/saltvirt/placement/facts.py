"""What the hosts say of themselves and of their VMs, as it comes over the wire: names and types."""

from typing import Any, TypedDict


class VmFacts(TypedDict):
    """A VM that a host has, as far as placement asks."""

    state: str
    vcpus: int
    memory_mib: int
    affinity: list[str]
    anti_affinity: list[str]


class ComingFacts(TypedDict):
    """A VM that a host awaits."""

    vcpus: int
    memory_mib: int
    disk_mib: int
    affinity: list[str]
    anti_affinity: list[str]


class _CpuMore(TypedDict, total=False):
    threads: int
    model: str | None
    vendor: str | None


class CpuFacts(_CpuMore):
    """A host's CPU; ``features`` are by domain type."""

    arch: str
    vcpus_limit: int
    vcpus_committed: int
    features: dict[str, list[str]]


class _MemoryMore(TypedDict, total=False):
    total_mib: int
    free_mib: int


class MemoryFacts(_MemoryMore):
    """A host's memory."""

    limit_mib: int
    committed_mib: int


class _StorageMore(TypedDict, total=False):
    images: dict[str, Any]
    pools: dict[str, dict[str, Any]]


class StorageFacts(_StorageMore):
    """The room for disks in a host's image folder."""

    limit_mib: int
    committed_mib: int


class NetworkFacts(TypedDict):
    """A network of libvirt's."""

    active: bool
    bridge: str | None


class NicProfile(TypedDict, total=False):
    """What a profile of interfaces needs of its host; ``error`` if it cannot be used."""

    error: str
    bridges: list[str]
    networks: list[str]
    links: list[str]
    bridge_vlans: bool


class DiskProfile(TypedDict, total=False):
    """What a profile of disks needs of its host; ``error`` if it cannot be used."""

    error: str
    size_mib: int
    has_image: bool


class Profiles(TypedDict):
    """The profiles of a host by their names."""

    nic: dict[str, NicProfile]
    disk: dict[str, DiskProfile]


class DomainTypes(TypedDict):
    """Which guests a host runs: by default, at all, and why no others."""

    default: str | None
    usable: list[str]
    why: str


class Machines(TypedDict):
    """The machine types of an architecture: the oldest and newest by family, and those without."""

    versions: dict[str, list[str]]
    names: list[str]


class Versions(TypedDict):
    """What a host runs."""

    libvirt: str
    qemu: str


class _HostMore(TypedDict, total=False):
    """What a host of an older release may not say."""

    maintenance: bool
    coming: dict[str, ComingFacts]
    machines: dict[str, Machines]
    unreadable: dict[str, str]
    moving: "About | None"


class HostInfo(_HostMore):
    """What a host answers to ``virt.host_info``."""

    vms: dict[str, VmFacts]
    building: list[str]
    unfinished: list[str]
    cpu: CpuFacts
    memory: MemoryFacts
    storage: StorageFacts
    bridges: list[str]
    links: list[str]
    networks: dict[str, NetworkFacts]
    profiles: Profiles
    domain_types: DomainTypes
    archs: list[str]
    versions: Versions


class ImageFacts(TypedDict):
    """What is known of a cached image: where it came from, and its size as a file."""

    source: str
    file_bytes: int


class _FileMore(TypedDict, total=False):
    size_bytes: int
    actual_bytes: int


class FileFacts(_FileMore):
    """A file of a VM that moves; ``how`` is ``copy``, ``push``, ``shared`` or ``absent``."""

    path: str
    how: str


class _DiskMore(_FileMore, total=False):
    virtual_bytes: int
    backing: str | None


class DiskFacts(_DiskMore):
    """A disk of a VM that moves; ``base`` is the digest of the cached image below it."""

    target: str
    path: str
    format: str
    device: str
    how: str
    base: str | None
    image: ImageFacts | None


class _AboutMore(TypedDict, total=False):
    """What a host of an older release may not say; then the target alone judges it."""

    wire: int
    images: str
    files: list[str]
    uuid: str
    autostart: bool
    bridge_vlans: bool
    machine: str | None
    next_machine: str | None
    cpu_qemu: str | None
    cpu: str | None
    host_cpu: str | None
    newer: list[list[str]]
    nvram: list[FileFacts]


class About(_AboutMore):
    """What a host answers of a VM to ``virt.migration_info``: all that another must know of it."""

    name: str
    state: str
    vcpus: int
    memory_mib: int
    disks: list[DiskFacts]
    affinity: list[str]
    anti_affinity: list[str]
    stay: bool
    domain_type: str
    arch: str
    bridges: list[str]
    networks: list[str]
    links: list[str]
    obstacles: list[str]


class _LoadMore(TypedDict, total=False):
    cpu_error: float | None


class VmLoad(_LoadMore):
    """What a VM used over some seconds: CPUs, and memory in MiB."""

    cpu: float
    memory_mib: int


class Load(_LoadMore):
    """What a host answers to ``virt.load``; ``cpu_error`` is there over several readings."""

    cpus: int
    memory_mib: int
    vms: dict[str, VmLoad]
