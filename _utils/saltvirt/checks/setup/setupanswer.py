"""A host's facts for ``virt.setup_check``, which the master judges."""

from dataclasses import dataclass, field

from saltvirt.placement.answers import Amount, HostInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFacts:
    """
    The image folder.

    why_not
        Why nothing can be written there; None if it can be, or if the folder is still to be made.
    user
        The user that QEMU runs as; None if that is unknown.
    closed
        The first folder on the way that this user cannot enter.
    """

    path: str
    why_not: str | None
    user: str | None
    closed: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MovingFacts:
    """
    The facts of a host for moving VMs.

    certificates
        Files that are missing.
    listens
        Whether libvirt's TLS port has a listener.
    peers
        Why the TLS port of some other hosts cannot be reached, None for those that can be.
    names
        Why the ids of the same hosts have no address here, None for those that do.
    """

    certificates: list[str]
    listens: bool
    peers: dict[str, str | None]
    names: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupRefusal:
    """A host's answer if options of its configuration or pillar cannot be used: the reason."""

    refused_option: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupFacts:
    """
    A host's answer to ``virt.setup_check``.

    code
        A digest of its library.
    clock_s
        Its time, in seconds since 1970.
    virtualization
        The flag of its CPU for that, ``vmx`` or ``svm``; empty if it has none.
    has_kvm
        Whether there is ``/dev/kvm``.
    libvirt
        Why libvirt does not answer, None if it does.
    info
        Its answer of ``virt.host_info``; None if it has none, for the reason in ``why_not``.
    bad_option
        Why it has no such answer, if an option is the cause; else None.
    lacking
        Missing programs and modules for seeding and cloning: ``qemu-img``, ``pycdlib``.
    storagepool, pool
        ``virt:storagepool``, empty if it is not set; why it cannot be used, None if it can.
    appliance, users
        Why no image can be inspected: no libguestfs, no users for it.
    seed_method
        ``virt:seed:method``.
    masters
        Why addresses of the master for guests cannot be reached from here, None for those that can.
    no_master
        Why there is no such address.
    misspelt
        Unknown option names, each with the one that may be meant.
    machine
        A digest of its /etc/machine-id; empty if it has none.
    deep
        Disks with longer backing chains than a disk may have, by their VMs.
    foreign_virt
        Distributions in its minion's Python with another module ``virt``.
    """

    code: str
    clock_s: Amount
    hash_type: str
    virtualization: str
    has_kvm: bool
    libvirt: str | None
    info: HostInfo | None
    why_not: str | None
    folder: FolderFacts
    lacking: list[str]
    storagepool: str
    pool: str | None
    appliance: str | None
    users: str | None
    masters: dict[str, str | None]
    no_master: str | None
    moving: MovingFacts
    unreadable: dict[str, str] = field(default_factory=dict)
    misspelt: dict[str, str] = field(default_factory=dict)
    machine: str = ""
    seed_method: str = "auto"
    deep: dict[str, list[str]] = field(default_factory=dict)
    bad_option: str | None = None
    foreign_virt: list[str] = field(default_factory=list)
