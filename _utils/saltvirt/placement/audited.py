"""What a host says of itself to ``virt.audit``: facts, which the master judges."""

from dataclasses import dataclass, field

from saltvirt.placement.answers import Count


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonFacts:
    """
    A libvirt daemon that takes TLS connections, as its file configures it.

    names
        Whose certificates it takes; None is any that its CA signed.
    verifies
        Whether it looks at certificates at all.
    is_open_here
        Whether any user of the host may give it orders.
    """

    path: str
    names: list[str] | None
    verifies: bool
    is_open_here: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayFacts:
    """A display of a VM; ``address`` is empty where it listens on none."""

    vm: str
    type: str
    address: str
    has_password: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFacts:
    """A certificate that a host shows to others; times are ISO texts in UTC."""

    path: str
    serial: str
    not_before: str
    not_after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFacts:
    """A private key: its mode, and what it may be at most; None as group is that of nobody."""

    path: str
    mode: Count
    most: Count
    owner: str
    group: str
    reader: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAudit:
    """
    What a host answers to ``virt.audit``.

    code
        A digest of the library that it has.
    plain
        The addresses at which something listens on libvirt's port without TLS.
    trusted
        Fingerprints of the CAs that it trusts, by use.
    qemu
        What ``qemu.conf`` says, of what is judged.
    unreadable
        What could not be looked at, and why.
    """

    code: str
    vms: list[str]
    daemons: list[DaemonFacts]
    plain: list[str]
    trusted: dict[str, list[str]]
    qemu: dict[str, str]
    displays: list[DisplayFacts]
    certificates: list[CertificateFacts]
    keys: list[KeyFacts]
    unreadable: dict[str, str] = field(default_factory=dict)
