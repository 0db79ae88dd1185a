"""What seeding decides and finds out, as data: identities, installations, what a disk has in it."""

from dataclasses import dataclass, field
from typing import Annotated, Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudInit:
    """
    What cloud-init is told besides the identity; only a seed of NoCloud can say it.

    user_data
        Mappings that are merged, in their order.
    """

    user_data: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    vendor_data: dict[str, Any] | None = field(default=None, repr=False)
    network: dict[str, Any] | None = None

    @property
    def all_data(self) -> tuple[dict[str, Any], ...]:
        """All cloud-config that somebody else has written."""
        return (*self.user_data, self.vendor_data or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """
    What makes a guest a minion. What may be secret of it is not in its ``repr``.

    public_key, private_key
        PEM text; None if the guest is to make its own.
    master_key
        The master's public key, None if the guest is to trust the first that answers.
    is_submitted
        This host has the master accept the key.
    ssh_keys
        Public keys of those who may log in by SSH, one line each.
    is_another
        The guest's disk has been another minion's, whose keys and machine id are taken away.
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
        What it is installed from: where that is to be had, and as ``(path, name)`` once it is here.
    digests
        The SHA-256 that each of the ``urls`` must have, None where nobody has said one.
    saltenv
        Where the ``urls`` are on the file server, if that is not the environment of the image.
    script
        What the guest runs when it boots, where the worker puts it there.
    why
        Why it is refused.
    network
        The worker's appliance gets a network.
    """

    kind: str
    urls: tuple[str, ...] = ()
    digests: tuple[str | None, ...] = ()
    saltenv: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    script: str | None = None
    why: str | None = None
    network: bool = False

    def to_job(self) -> dict[str, Any]:
        """Return what the worker is told."""
        return {
            "kind": self.kind,
            "files": list(self.files),
            "script": self.script,
            "why": self.why,
        }


# An image's own words, which are shown to people.
_Words = Annotated[str, "one line"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """
    What a disk has in it, as the worker says; ``root`` is None if there is no system in it.

    mounts
        ``[[place, device]]`` of its file systems, for the next that opens a disk of this content.
    datasources
        Where cloud-init looks for its data; None if its files do not say.
    has_ssh_server
        None if nobody looked for one: what is kept of an image may be of an older release.
    systemd_version
        None if there is no systemd, or it does not say.
    """

    root: str | None
    mounts: list[list[str]] = field(default_factory=list)
    os: _Words | None = None
    arch: str | None = None
    has_minion: bool = False
    has_cloud_init: bool = False
    datasources: list[_Words] | None = None
    has_ssh_server: bool | None = None
    has_systemd: bool = False
    systemd_version: int | None = None
