"""
The answers of hosts about themselves and their VMs; ``wire`` turns them into plain data and back.

A default stands for what a host does not send, such as a host without that object.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from saltvirt.placement.resources import Stock

# A count is never negative; a limit can be, after what a host keeps back.
Count = Annotated[int, "not negative"]
Amount = Annotated[float, "not negative"]
# Text for display alone.
Words = Annotated[str, "one line"]


def default_with(name: str) -> Any:
    """Return a field with the default None, left out on the wire if the named field is None."""
    return field(default=None, metadata={"default_with": name})


@dataclass(frozen=True, slots=True, kw_only=True)
class VmFacts:
    """
    A VM that a host has, with the facts for placement.

    uuid
        Only hosts that give a VM the UUID of the master's choice send it.
    """

    uuid: str | None = default_with("uuid")
    state: str
    vcpus: Count
    memory_mib: Count
    affinity: list[str]
    anti_affinity: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComingFacts:
    """A VM that is on its way to a host."""

    vcpus: Count
    memory_mib: Count
    disk_mib: Count
    affinity: list[str]
    anti_affinity: list[str]
    stocks: dict[str, Count] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuFacts:
    """A host's CPU; ``features`` are by domain type."""

    threads: Count = 0
    model: str | None = None
    vendor: str | None = None
    arch: str
    vcpus_limit: int
    vcpus_committed: Count
    features: dict[str, list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFacts:
    """A host's memory."""

    total_mib: Count = 0
    free_mib: Count = 0
    limit_mib: int
    committed_mib: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageFacts:
    """The room for disks in a host's image folder, and what its trash takes of it."""

    images: dict[str, Any] = field(default_factory=dict)
    pools: dict[str, dict[str, Any]] = field(default_factory=dict)
    limit_mib: int
    committed_mib: Count
    trash_mib: Count | None = default_with("trash_mib")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkFacts:
    """A network of libvirt; ``forward`` is None if its host does not send it."""

    active: bool
    bridge: str | None
    forward: str | None = default_with("forward")


@dataclass(frozen=True, slots=True, kw_only=True)
class NicPlace:
    """The place of a NIC of a profile; ``switched`` means that it is a port of Open vSwitch."""

    type: str
    on: str | None
    tagged: bool
    switched: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NicProfile:
    """
    The needs of a NIC profile; ``error`` alone if the profile cannot be used.

    nics
        Each NIC, as a call may place one elsewhere.
    """

    error: Words | None = default_with("error")
    bridges: list[str] | None = default_with("bridges")
    networks: list[str] | None = default_with("networks")
    links: list[str] | None = default_with("links")
    bridge_vlans: bool | None = default_with("bridge_vlans")
    nics: dict[str, NicPlace] | None = default_with("nics")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskProfile:
    """The needs of a disk profile; ``error`` alone if the profile cannot be used."""

    error: Words | None = default_with("error")
    size_mib: Count | None = default_with("size_mib")
    has_image: bool | None = default_with("has_image")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """The profiles of a host by their names."""

    nic: dict[str, NicProfile]
    disk: dict[str, DiskProfile]


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainTypes:
    """The domain types of a host: the default, all usable ones, and why it has no others."""

    default: str | None
    usable: list[str]
    why: Words


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """An architecture's machine types: oldest and newest by family, and those without a version."""

    versions: dict[str, list[str]]
    names: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The versions that a host runs."""

    libvirt: Words
    qemu: Words


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """The facts of a cached image: its source, and the size of its file."""

    source: str
    file_bytes: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """A file of a moving VM besides its disks; ``how`` is ``copy`` or ``push``."""

    path: str
    how: str
    size_bytes: Count
    actual_bytes: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFacts:
    """
    A disk of a moving VM.

    how
        ``copy`` (libvirt mirrors it), ``push`` (sent as a file) or ``shared``; ``device``,
        ``missing`` and ``split`` are obstacles.
    base, image
        The digest of the cached image below it, and that image's facts.
    virtual_bytes, actual_bytes, backing, size_bytes, inode
        The values as measured, None if they were not.
    pool
        The pool that has the file of a volume, at ``path``, on every host that takes it.
    """

    target: str
    path: str
    format: str
    device: str
    how: str
    base: str | None
    image: ImageFacts | None
    virtual_bytes: Count | None = default_with("virtual_bytes")
    actual_bytes: Count | None = default_with("actual_bytes")
    backing: str | None = default_with("virtual_bytes")
    size_bytes: Count | None = default_with("size_bytes")
    pool: str | None = default_with("pool")
    inode: Count | None = default_with("inode")


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationInfo:
    """
    A host's answer to ``virt.migration_info``: all that another host must know about a VM.

    nat, marks
        The ``networks`` with NAT; the marks by which a target recognizes a shared folder.
    """

    wire: int | None = default_with("wire")
    name: str
    uuid: str
    state: str
    vcpus: Count
    memory_mib: Count
    disks: list[DiskFacts]
    images: str | None = None
    affinity: list[str]
    anti_affinity: list[str]
    stay: bool
    domain_type: str
    arch: str
    machine: str | None = None
    next_machine: str | None = None
    newer: list[list[Words]] = field(default_factory=list)
    cpu: str | None = None
    host_cpu: str | None = None
    cpu_qemu: str | None = None
    bridges: list[str]
    networks: list[str]
    nat: list[str] = field(default_factory=list)
    links: list[str]
    bridge_vlans: bool = False
    obstacles: list[Words]
    nvram: list[FileFacts] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    marks: list[str] | None = default_with("marks")
    autostart: bool = False
    said: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    """What this was read from; another host is told just that. None for a VM of this host."""

    @property
    def is_running(self) -> bool:
        """Whether it has memory, which moves, too."""
        return self.state in ("running", "paused")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostInfo:
    """
    A host's answer to ``virt.host_info``.

    kept
        ``{name: host}`` of the VMs that have moved there, with only their definition left here.
    moving
        The VM that the master asked about.
    """

    maintenance: bool = False
    tags: dict[str, str] = field(default_factory=dict)
    vms: dict[str, VmFacts]
    kept: dict[str, str] = field(default_factory=dict)
    building: list[str]
    coming: dict[str, ComingFacts] = field(default_factory=dict)
    unfinished: list[str]
    unreadable: dict[str, str] = field(default_factory=dict)
    cpu: CpuFacts
    memory: MemoryFacts
    storage: StorageFacts
    bridges: list[str]
    links: list[str]
    networks: dict[str, NetworkFacts]
    profiles: Profiles
    domain_types: DomainTypes
    machines: dict[str, Machines] = field(default_factory=dict)
    archs: list[str]
    versions: Versions
    stocks: dict[str, Stock] | None = None
    moving: MigrationInfo | None = default_with("moving")


@dataclass(frozen=True, slots=True, kw_only=True)
class VmLoad:
    """The use of a VM over some seconds: CPUs, and memory in MiB."""

    cpu: Amount
    memory_mib: Count
    cpu_error: float | None = default_with("cpu_error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A host's answer to ``virt.load``; ``cpu_error`` is set after several readings."""

    cpus: Count
    memory_mib: Count
    vms: dict[str, VmLoad]
    cpu_error: float | None = default_with("cpu_error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """
    A host's answer to ``virt.presence``: all that locating one VM needs.

    moved_to
        The host that has the VM; only its definition was kept here.
    uuid, notes_made
        The VM's UUID, and whether its definition records what its build made. None without the VM.
    reports
        Whether the host's purge can report what it has removed; hosts of older releases cannot.
    """

    state: str | None
    building: bool
    unfinished: bool
    moved_to: str | None = default_with("moved_to")
    uuid: str | None = None
    notes_made: bool | None = default_with("notes_made")
    reports: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A host's answer to ``virt.migrate_prepare``: images that it needs, media that it has."""

    images: dict[str, str]
    present: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDone:
    """A host's answer to ``virt.migrate_step``: one of the two, depending on the step."""

    removed: list[str] = field(default_factory=list)
    warnings: list[Words] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """A host's answer to ``virt.migrate``: the figures, and what the target must know."""

    total_ms: Count = 0
    downtime_ms: Count | None = None
    memory_bytes: Count | None = None
    disk_bytes: Count | None = None
    noted: dict[str, Any] = field(default_factory=dict)
    warnings: list[Words] = field(default_factory=list)

    def shown(self) -> dict[str, int]:
        """Return the figures that are known, for users."""
        numbers = {
            "total_ms": self.total_ms,
            "downtime_ms": self.downtime_ms,
            "memory_bytes": self.memory_bytes,
            "disk_bytes": self.disk_bytes,
        }
        return {name: number for name, number in numbers.items() if number is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedImage:
    """An image in a host's cache; decisions use ``users`` alone, the rest is for display."""

    users: list[str]
    source: str | None = None
    format: str | None = None
    file_bytes: Count | None = None
    virtual_bytes: Count | None = None
    os: str | None = None


# The key of an answer with the files that all hosts must be asked about first.
ASK = "ask_all_hosts"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileUsers:
    """
    A host's answer to ``virt.file_users`` about one file.

    used_by
        Why it needs the file.
    doubts
        Why it cannot decide that.
    """

    used_by: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedDisk:
    """A file that other hosts see, too, and whether a program has it open, here or there."""

    path: str
    is_open: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """
    A host's answer to ``virt.image_prune``, by digest.

    removed
        The bytes of each removed image.
    kept
        Why others stay.
    begun
        Images that it will remove on request, unless they are used meanwhile.
    """

    removed: dict[str, Count]
    kept: dict[str, str] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)
