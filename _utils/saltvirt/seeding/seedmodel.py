"""The data of seeding: identities, installations, and inspections of disks."""

from dataclasses import dataclass, field
from typing import Annotated, Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudInit:
    """
    Data for cloud-init besides the identity; only a NoCloud seed has it.

    user_data
        Mappings that are merged, in their order.
    """

    user_data: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    vendor_data: dict[str, Any] | None = field(default=None, repr=False)
    network: dict[str, Any] | None = None

    @property
    def all_data(self) -> tuple[dict[str, Any], ...]:
        """All cloud-config from the operator or a vendor."""
        return (*self.user_data, self.vendor_data or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """
    The identity that makes a guest a minion. Its ``repr`` shows no secrets.

    public_key, private_key
        PEM text; None if the guest is to make its own.
    master_key
        The master's public key, None if the guest is to trust the first master that answers.
    is_submitted
        This host has the master accept the key.
    ssh_keys
        Public keys for login by SSH, one line each.
    is_another
        The disk was another minion's: its keys and machine id are removed.
    """

    id: str
    config: dict[str, Any] = field(repr=False)
    public_key: str | None = None
    private_key: str | None = field(default=None, repr=False)
    master_key: str | None = None
    is_submitted: bool = False
    ssh_keys: tuple[str, ...] = ()
    cloud_init: CloudInit = field(default=CloudInit(), repr=False)
    is_another: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """
    How a minion is installed.

    kind
        ``repository`` (the guest's own package manager), ``package``, ``script`` or ``tarball``, by
        the worker; ``boot``, by the guest when it boots; ``refused`` if it has none.
    urls, files
        The files to install from: their URLs, and ``(path, name)`` once they are on this host.
    digests
        The required SHA-256 of each of the ``urls``, None if unknown.
    saltenv
        The file server's environment for the ``urls``, if it is not the image's.
    script
        The script that the guest runs when it boots, if the worker puts it there.
    refusal
        The reason for a refusal.
    network
        The worker's appliance gets a network.
    """

    kind: str
    urls: tuple[str, ...] = ()
    digests: tuple[str | None, ...] = ()
    saltenv: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    script: str | None = None
    refusal: str | None = None
    network: bool = False

    def to_job(self) -> dict[str, Any]:
        """Return the worker's part of a job."""
        return {
            "kind": self.kind,
            "files": list(self.files),
            "script": self.script,
            "refusal": self.refusal,
        }


# Text from an image, which is shown to operators.
_Words = Annotated[str, "one line"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """
    The worker's answer about a disk; ``root`` is None if it contains no system.

    mounts
        ``[[place, device]]`` of its file systems, for the next job on a disk of this content.
    datasources
        Where cloud-init looks for its data; None if its files do not tell.
    systemd_version
        None if there is no systemd, or if its version is unknown.
    """

    root: str | None
    mounts: list[list[str]] = field(default_factory=list)
    os: _Words | None = None
    arch: str | None = None
    has_minion: bool = False
    has_cloud_init: bool = False
    datasources: list[_Words] | None = None
    has_ssh_server: bool = True
    has_systemd: bool = False
    systemd_version: int | None = None
