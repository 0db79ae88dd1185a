"""A host's facts for ``virt.audit``, which the master judges."""

from dataclasses import dataclass, field

from saltvirt.placement.answers import Count


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonFacts:
    """
    A libvirt daemon that takes TLS connections, as its file configures it.

    names
        The names in the certificates that it takes; None takes any that its CA signed.
    verifies
        Whether it checks certificates at all.
    """

    path: str
    names: list[str] | None
    verifies: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFacts:
    """
    The host's own users who may give libvirt orders.

    sockets
        Files that open the socket to all users: ``auth_unix_rw`` is none.
    users
        Members of libvirt's group who are no administrators.
    rules
        Files of polkit that let users in.
    """

    sockets: list[str]
    users: list[str]
    rules: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayFacts:
    """A display of a VM; ``address`` is empty if it listens on none."""

    vm: str
    type: str
    address: str
    has_password: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleFacts:
    """A serial, console or channel of a VM that listens on the network; ``tls`` as its XML says."""

    vm: str
    address: str
    tls: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationFacts:
    """
    A file of lists of revoked certificates.

    ends
        The end of the first list's validity, an ISO text in UTC.
    """

    path: str
    ends: str
    serials: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFacts:
    """A certificate that a host shows to others; times are ISO texts in UTC."""

    path: str
    serial: str
    not_before: str
    not_after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFacts:
    """A private key: its mode and the most it may be; ``reader``: the group that may read it."""

    path: str
    mode: Count
    most: Count
    owner: str
    group: str
    reader: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFacts:
    """
    The releases that a host runs.

    distribution
        As /etc/os-release has it: ``debian 12``; empty if it is unknown.
    libvirt
        The release of the daemon.
    packages
        The versions of libvirt's and QEMU's packages, where dpkg installs them.
    """

    distribution: str
    libvirt: str
    packages: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAudit:
    """
    A host's answer to ``virt.audit``.

    code
        A digest of its library.
    plain
        The addresses of listeners on libvirt's port without TLS.
    unguarded
        Names of firewall rules; no other rule restricts what the host forwards.
    outdated
        Those with a table that lets some of that through.
    user_nics
        VMs with a NIC of type ``user``: they send as the host.
    trusted
        Fingerprints of the CAs that it trusts, by use.
    revoked
        The lists of revoked certificates that it heeds, by use.
    qemu
        The values of ``qemu.conf`` that are judged.
    compat
        ``virt:compat``, None if it is not set.
    wrong_options
        Why options of ``virt:`` cannot be used.
    linked_images
        Cached images with another name: ``[path, other name]``, empty if that is unknown.
    unreadable
        Facts that could not be read, and why.
    release
        Its releases of libvirt and QEMU.
    filtered
        VMs with a network filter.
    open_disks
        Disks to which VMs write, by VM, and which any user of the host can read.
    """

    code: str
    vms: list[str]
    daemons: list[DaemonFacts]
    local: LocalFacts
    plain: list[str]
    unguarded: list[str]
    trusted: dict[str, list[str]]
    revoked: dict[str, RevocationFacts]
    qemu: dict[str, str]
    displays: list[DisplayFacts]
    consoles: list[ConsoleFacts]
    certificates: list[CertificateFacts]
    keys: list[KeyFacts]
    compat: str | None = None
    wrong_options: list[str] = field(default_factory=list)
    outdated: list[str] = field(default_factory=list)
    user_nics: list[str] = field(default_factory=list)
    linked_images: list[list[str]] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    release: ReleaseFacts | None = None
    filtered: list[str] = field(default_factory=list)
    open_disks: dict[str, list[str]] = field(default_factory=dict)
