"""What a host says of itself to ``virt.setup_check``: facts, which the master judges."""

from dataclasses import dataclass, field

from saltvirt.placement.answers import Amount, HostInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFacts:
    """
    The image folder.

    why_not
        Why nothing can be written there; None if it can, also if it is still to be made.
    user
        As whom QEMU runs; None if that cannot be told.
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
    What moving VMs needs of a host.

    certificates
        Files that are missing.
    listens
        Whether something listens for libvirt's TLS.
    peers
        Why libvirt's TLS port of others is not reached, None where it is; of some of them only.
    names
        Why the ids of the same lead to no address here, None where they do.
    """

    certificates: list[str]
    listens: bool
    peers: dict[str, str | None]
    names: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupFacts:
    """
    What a host answers to ``virt.setup_check``.

    code
        A digest of the library that it has.
    clock_s
        Its time, in seconds since 1970.
    virtualization
        The flag of its CPU that says so, ``vmx`` or ``svm``; empty if it has none.
    has_kvm
        Whether there is ``/dev/kvm``.
    libvirt
        Why libvirt does not answer, None if it does.
    info
        Its answer of ``virt.host_info``; None if it has none, and ``why_not`` says why.
    lacking
        What seeding and cloning need and this host has not: ``qemu-img``, ``pycdlib``.
    storagepool, pool
        ``virt:storagepool``, empty if it is not set; why it cannot be used, None if it can.
    appliance, users
        Why no image can be looked into: no libguestfs, no users for it.
    seed_method
        ``virt:seed:method``.
    masters
        Why the addresses by which guests reach the master are not reached, None for those that are.
    no_master
        Why there is no such address.
    misspelt
        What its options are called, and what they may be meant to be called.
    machine
        A digest of its /etc/machine-id; empty if it has none.
    deep
        Disks that have more files below them than a disk may have, by their VMs.
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
