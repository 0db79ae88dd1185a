"""The nouns of the project as plain, frozen data."""

from dataclasses import dataclass, field
from typing import Any

# The bridge of a NIC without a source.
DEFAULT_BRIDGE = "br0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """
    One network interface of a VM.

    has_model
        Whether the call or its profile names the model; else an existing NIC keeps its model.
    """

    name: str
    type: str = "bridge"
    source: str | None = DEFAULT_BRIDGE
    mac: str = ""
    model: str = "virtio"
    has_model: bool = True
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def on(self) -> str | None:
        """The bridge, network or link of the host that the NIC is attached to."""
        return self.source

    @property
    def is_tagged(self) -> bool:
        """Whether it has VLAN tags."""
        return "vlan" in self.extra

    @property
    def is_switched(self) -> bool:
        """Whether it is a port of Open vSwitch."""
        return bool(self.extra.get("virtualport", {}).get("type") == "openvswitch")


def host_need(kind: str | None, *, is_switched: bool) -> str | None:
    """Return which of ``bridges``, ``networks``, ``links`` a NIC of a type needs; None if none."""
    if kind == "bridge":
        return "links" if is_switched else "bridges"
    return {"network": "networks", "direct": "links"}.get(kind or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledNic:
    """A NIC as a call describes it; None for values that the host's profile has."""

    type: str | None = None
    source: str | None = None
    tagged: bool | None = None
    switched: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteSource:
    """
    The source of a disk that is no file or device of the host.

    ``type`` is libvirt's, ``volume`` or ``network``; ``source`` and ``hosts`` are attributes;
    ``auth`` is ``{username, type, usage}`` or ``{username, type, uuid}``, of a secret of libvirt.
    """

    type: str
    source: dict[str, str]
    hosts: tuple[dict[str, str], ...] = ()
    auth: dict[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """
    One disk of a VM: the request (``image``, ``size_mib``) and the place of its data.

    ``path`` is a file or a device of the host, ``volume`` is ``POOL/VOLUME``, ``elsewhere`` is any
    other source in a definition. URLs, which may have secrets, are not in its ``repr``.
    """

    name: str
    target: str
    size_mib: int | None = None
    format: str | None = None
    bus: str = "virtio"
    device: str = "disk"
    image: str | None = field(default=None, repr=False)
    image_hash: str | None = field(default=None, repr=False)
    overlay: bool | None = None
    pool: str | None = None
    source_file: str | None = field(default=None, repr=False)
    backing_path: str | None = None
    backing_format: str | None = None
    io: str | None = None
    iothread_id: int | None = None
    path: str | None = None
    volume: str | None = None
    elsewhere: RemoteSource | None = None
    is_sized_by_user: bool = False
    is_3006: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Vm:
    """All that determines a VM's domain XML; values that may be secret are not in its ``repr``."""

    name: str
    uuid: str | None = None
    cpu: int | dict[str, Any]
    vcpus: int
    memory: int | dict[str, Any]
    memory_mib: int
    nics: tuple[Nic, ...] = ()
    disks: tuple[Disk, ...] = ()
    domain_type: str | None = None
    os_type: str | None = None
    arch: str | None = None
    machine: str | None = None
    graphics: dict[str, Any] | None = field(default=None, repr=False)
    boot: dict[str, Any] | None = field(default=None, repr=False)
    boot_dev: tuple[str, ...] = ("hd",)
    numatune: dict[str, Any] | None = None
    hypervisor_features: dict[str, Any] | None = None
    clock: dict[str, Any] | None = None
    serials: tuple[dict[str, Any], ...] | None = None
    consoles: tuple[dict[str, Any], ...] | None = None
    stop_on_reboot: bool = False
    host_devices: tuple[str, ...] = ()
    affinity: tuple[str, ...] = ()
    anti_affinity: tuple[str, ...] = ()
    seed_path: str | None = None
    ssh_user: str | None = None
    console_log: str | None = None
    is_3006: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """
    What a VM needs of a host; ``None`` means unknown, and is not checked.

    called
        For a call with a profile of NICs: the NICs that the call itself describes, by their names.
    """

    name: str
    vcpus: int
    memory_mib: int
    disk_mib: int = 0
    bridges: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    bridge_vlans: bool = False
    nic_profile: str | None = None
    called: tuple[tuple[str, CalledNic], ...] = ()
    disk_profile: str | None = None
    domain_type: str | None = None
    arch: str | None = None
    machine: str | None = None
    next_machine: str | None = None
    cpu_qemu: str | None = None
    newer: tuple[tuple[str, str], ...] = ()
    cpu_features: tuple[str, ...] = ()
    affinity: tuple[str, ...] = ()
    anti_affinity: tuple[str, ...] = ()
    stocks: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        return f"{self.name!r} ({self.vcpus} CPUs, {self.memory_mib} MiB)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """
    How to choose among the hosts that can take a VM, and what must hold afterwards.

    placement
        ``spread``: the host with the most room; ``pack``: the fullest.
    spread_over
        A tag of hosts such as ``rack``. It comes first: the rack with the fewest VMs of the VM's
        anti-affinity groups is the best; with the fewest VMs at all, if the VM has no groups.
    headroom
        Any single host may fail, and its VMs still find room on the others.
    """

    placement: str = "spread"
    spread_over: str | None = None
    headroom: bool = False

    @property
    def packs(self) -> bool:
        """Whether the fullest host is the best."""
        return self.placement == "pack"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """
    Whether one host can take a VM, the reasons against it, and its score.

    crowd, note
        How many VMs count in the host's rack, or among hosts with the same value of another tag:
        fewer is better; and the text for users, if VMs are spread over a tag.
    """

    host: str
    reasons: tuple[str, ...] = ()
    score: float = 0.0
    crowd: int = 0
    note: str = ""

    @property
    def fits(self) -> bool:
        """Whether the host can take it."""
        return not self.reasons

    def to_dict(self) -> dict[str, Any]:
        """Return the row that ``dry_run=True`` shows."""
        row = {"fits": self.fits, "score": round(self.score, 3), "reasons": list(self.reasons)}
        return {**row, "crowd": self.crowd, "note": self.note} if self.note else row


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """
    How a VM is moved; bandwidths in MiB/s, the downtime in ms, limits in s.

    live
        Whether the VM runs while its memory is sent. None, the default, means yes, unless its QEMU
        would lose writes; see :func:`saltvirt.placement.generation.loses_writes`.
    parallel_connections
        The number of connections for the memory. None, the default, is two where the kind of move
        allows that; see :func:`saltvirt.migration.host.connections.choose`.
    """

    live: bool | None = None
    persistent: bool = True
    undefinesource: bool = True
    offline: bool = False
    max_bandwidth: int | None = None
    max_downtime: int | None = None
    parallel_connections: int | None = None
    compressed: bool = False
    comp_methods: tuple[str, ...] = ()
    comp_mt_level: int | None = None
    comp_mt_threads: int | None = None
    comp_mt_dthreads: int | None = None
    comp_xbzrle_cache: int | None = None
    copy_storage: str | None = None
    postcopy: bool = False
    postcopy_bandwidth: int | None = None
    postcopy_after: int | None = None
    tunnel: bool = False
    tls: bool = True
    limit_s: int = 3600
    stall_s: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A VM, and how to start and seed it. Values that may be secret are not in its ``repr``."""

    vm: Vm
    start: bool
    autostart: bool = False
    saltenv: str
    seed: bool
    seed_cmd: str
    seed_method: str | None
    install: bool
    install_from: str | None
    user_data: dict[str, Any] | str | None = field(repr=False)
    ssh_keys: tuple[str, ...] = ()
    config: dict[str, Any] = field(repr=False)
    enable_qcow: bool | None
    pub_key: str | None
    priv_key: str | None = field(repr=False)

    @property
    def is_seeded(self) -> bool:
        """Whether to make a seed: it is requested, and there is an image that could read it."""
        return self.seed and any(disk.image for disk in self.vm.disks)
