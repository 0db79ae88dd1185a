"""The choice of a guest's seed method, by the request and by the image's content."""

from dataclasses import dataclass
from typing import Any

from saltvirt.core import guestaccess
from saltvirt.core.arguments import hide_credentials
from saltvirt.core.errors import SeedError
from saltvirt.core.options.config import HostSettings
from saltvirt.seeding import credentials, firstboot, install, unread, users
from saltvirt.seeding.seedmodel import Inspection, Installation
from saltvirt.seeding.shared import minionpackages
from saltvirt.seeding.shared.minionpackages import Package

# Methods that write into the disk, or depend on its content: the image is inspected first.
_INSPECTS = ("auto", "guestfs", "credentials")
_APPLIANCE_ADVICE = "have python3-guestfs installed there: salt HOST state.apply hypervisor"
_SKIP_ADVICE = (
    "give seed_method=nocloud for an image that has cloud-init and a minion, or seed=False for a "
    "VM without one"
)

# For images that packages fetched by the master do not suit: fetching would not help.
_OWN_SOURCE_ADVICE = (
    f"what `{minionpackages.COMMAND}` fetches does not suit it, as that needs systemd, on "
    f"{' or '.join(minionpackages.ARCHES)}: give install_from= packages or a script"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRequest:
    """
    The inputs to the choice of a seed method, except the image's content.

    asked
        A seed method of ours, or ``auto``.
    function
        The minion's function that seeds instead, None for our own methods.
    install_from
        From :func:`saltvirt.seeding.install.source`.
    provided
        The packages on the file server that suit the image, if ``install_from`` is unset.
    is_networked
        Whether an appliance that installs a minion gets a network.
    is_for_cloud_init
        Whether the call has data that only cloud-init reads.
    has_ssh_keys, asks_for_ssh_keys
        Whether there are SSH keys to log in with; whether the call itself gives any.
    has_own_users, has_own_packages
        Whether the user data sets the users or the default user's name; the package sources.
    why_blind
        Why this host cannot inspect images, None if it can.
    """

    image: str
    asked: str = "auto"
    function: str | None = None
    install_from: tuple[str, ...] | None = None
    provided: tuple[Package, ...] = ()
    installs: bool = True
    starts: bool = True
    is_networked: bool = False
    is_for_cloud_init: bool = False
    has_ssh_keys: bool = False
    asks_for_ssh_keys: bool = False
    has_own_users: bool = False
    has_own_packages: bool = False
    why_blind: str | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """The URLs to install a minion from: the requested ones, else the master's packages."""
        return self.install_from or tuple(package.url for package in self.provided)

    @property
    def is_image_known(self) -> bool:
        """Whether the method depends on the image's content."""
        return not self.function and self.asked in _INSPECTS

    @property
    def is_image_inspected(self) -> bool:
        """Whether this host inspects the image for the method."""
        return self.is_image_known and not self.why_blind


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedMethod:
    """
    The seed method of a VM; ``warnings`` are lines from :func:`unread.warnings`.

    name
        A seed method of ours, or the function that the user named.
    install
        How a minion is installed, None if none is; its ``urls`` are still to be fetched.
    found
        The image's content, if it was needed.
    why
        The reason for the method, if neither the request nor the image decides it.
    ssh_user
        The guest's user for logins by SSH, None if there is none or it is unknown; ``USER`` stands
        for the default user of an unknown image.
    """

    name: str
    install: Installation | None = None
    found: Inspection | None = None
    why: str | None = None
    ssh_user: str | None = None
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the method as ``dry_run=True`` shows it."""
        return {
            "method": self.name,
            "install": self.install.kind if self.install else None,
            "install_from": [hide_credentials(url) for url in self.install.urls]
            if self.install
            else [],
            "os": self.found.os if self.found else None,
            **({"why": self.why} if self.why else {}),
            **({"warnings": list(self.warnings)} if self.warnings else {}),
        }


def refuse_host_mount(settings: HostSettings) -> None:
    """Raise SeedError unless the operator allows this host's kernel to mount guests' disks."""
    if settings.seed.get("allow_host_mount") is not True:
        raise SeedError(
            "mounting a guest's disk on this host lets its kernel read what a stranger may have "
            "made; use guestfs, or set virt:seed:allow_host_mount: True"
        )


def decide(
    request: SeedRequest,
    content: Inspection | None = None,
    inspection_error: SeedError | None = None,
) -> SeedMethod:
    """
    Return the seed method of a VM; raise SeedError if seeding cannot work.

    content
        The image's content; None if the image was not inspected.
    inspection_error
        The error of a failed inspection.

    Without either, the method of an image that is still to be inspected is provisional.
    """
    if request.function:
        if request.asks_for_ssh_keys:
            raise SeedError(f"ssh_authorized_keys: seed_cmd {request.function} is not given them")
        return SeedMethod(name=request.function)
    if request.asked == "credentials" and not request.starts:
        raise SeedError("credentials are handed over when the VM starts; leave out start=False")
    if request.is_image_inspected and content is None and inspection_error is None:
        return SeedMethod(name=request.asked, why="the image was not looked into yet")
    name, reason = _choose_name(request, content, inspection_error)
    installation = _choose_install(request, name, content)
    _refuse_without_appliance(request, name, installation)
    _refuse_unread(request, name, content)
    user = _ssh_user(request, name, content)
    warnings = unread.warnings(request.image, name, content, has_ssh_keys=request.has_ssh_keys)
    return SeedMethod(
        name=name, install=installation, found=content, why=reason, ssh_user=user, warnings=warnings
    )


def _refuse_unread(request: SeedRequest, name: str, content: Inspection | None) -> None:
    """Raise SeedError if nothing in the guest would read data that the call gives."""
    if name != "nocloud":
        if request.is_for_cloud_init:
            raise SeedError(
                f"user_data and the guest's part of interfaces are for cloud-init; with "
                f"{name} nothing in the guest would read them"
            )
    elif request.asks_for_ssh_keys and content is not None and not content.has_cloud_init:
        missing_part = "cloud-init" if content.root else "operating system"
        raise SeedError(
            f"ssh_authorized_keys: image {hide_credentials(request.image)} has no {missing_part}, "
            "so nothing in it would "
            "read them"
        )


def _refuse_without_appliance(
    request: SeedRequest, name: str, installation: Installation | None
) -> None:
    """Raise SeedError if the method needs an appliance and this host has none."""
    if request.why_blind and (name == "guestfs" or (installation and installation.kind != "boot")):
        raise SeedError(
            f"image {hide_credentials(request.image)} needs an appliance, and this host has none: "
            f"{request.why_blind}; {_APPLIANCE_ADVICE}"
        )


def _ssh_user(request: SeedRequest, name: str, content: Inspection | None) -> str | None:
    if not request.has_ssh_keys or (content is not None and content.has_ssh_server is False):
        return None
    if name != "nocloud":
        return "root"
    if request.has_own_users or (content is not None and content.root is None):
        return None
    return users.default_user(content.os if content else None) or guestaccess.SOME_USER


def _choose_name(
    request: SeedRequest, content: Inspection | None, inspection_error: SeedError | None
) -> tuple[str, str | None]:
    """Return ``(method, why)``."""
    if content is None:
        return _choose_unseen(request, inspection_error)
    _refuse_unfit(request, content)
    if request.asked != "auto":
        return request.asked, None
    if content.root is None:
        return "nocloud", "there is no operating system in the image"
    # The cheapest safe method that the image supports; cloud-init sets up the network too.
    return ("nocloud" if content.has_cloud_init else "guestfs"), None


def _choose_unseen(
    request: SeedRequest, inspection_error: SeedError | None
) -> tuple[str, str | None]:
    """Return ``(method, why)`` of an image that was not inspected."""
    if inspection_error:
        if request.asked != "auto":
            raise inspection_error
        if request.installs:
            raise SeedError(
                f"whether image {hide_credentials(request.image)} has a salt-minion cannot be "
                f"seen: {inspection_error}; "
                f"{_SKIP_ADVICE}"
            )
        # With install=False the user states that there is a minion; a NoCloud seed does no harm.
        return "nocloud", str(inspection_error)
    if request.why_blind and request.asked == "guestfs":
        raise SeedError(f"seed_method guestfs does not work on this host: {request.why_blind}")
    if request.why_blind and request.asked == "auto":
        if request.installs:
            raise SeedError(
                f"whether image {hide_credentials(request.image)} has a salt-minion cannot be seen "
                "on this host: "
                f"{request.why_blind}; {_APPLIANCE_ADVICE}, or {_SKIP_ADVICE}"
            )
        return "nocloud", "nothing here could look into the image"
    return request.asked, None


def _choose_install(
    request: SeedRequest, name: str, content: Inspection | None
) -> Installation | None:
    """Return how the minion is installed; None if the image has a minion, or gets none."""
    if not request.installs or name == "credentials" or (content and content.has_minion):
        return None
    cloud_content = content if content and content.root and name == "nocloud" else None
    if name == "guestfs" or (cloud_content and request.sources):
        return _install_in_appliance(request, content)
    return _install_at_boot(request, name, cloud_content)


def _install_at_boot(request: SeedRequest, name: str, content: Inspection | None) -> Installation:
    """Return how a guest installs its minion at boot; raise SeedError if that cannot work."""
    if request.install_from:
        reason = {
            "nocloud": "it is put into a system that was found in the image",
            "nbd": "a host never runs what is in a guest's disk",
        }[name]
        raise SeedError(f"install_from needs seed_method=auto or guestfs: {reason}")
    if content:
        _refuse_unpackaged(request, content)
    return Installation(kind="boot", script=firstboot.install() if name == "nbd" else None)


def _install_in_appliance(request: SeedRequest, content: Inspection | None) -> Installation:
    urls, arch = request.sources, content.arch if content else None
    packages = () if request.install_from else request.provided
    _refuse_unstarted(request, content)
    if content and not urls and not request.is_networked and not _may_be_fetched(content):
        raise SeedError(
            f"image {hide_credentials(request.image)} ({content.os}) has no salt-minion; "
            f"{_OWN_SOURCE_ADVICE}, or set "
            "virt:seed:install_network: True to let the guest's own repositories be used"
        )
    try:
        return install.decide(urls, arch, is_networked=request.is_networked, packages=packages)
    except SeedError as exc:
        raise SeedError(f"image {hide_credentials(request.image)}: {exc}") from exc


def _may_be_fetched(content: Inspection) -> bool:
    return minionpackages.may_suit(content.os, content.arch, has_systemd=content.has_systemd)


def _refuse_unstarted(request: SeedRequest, content: Inspection | None) -> None:
    """Raise SeedError for a tarball without systemd: nothing would start the minion."""
    is_tarball = any(install.kind(url) == "tarball" for url in request.install_from or ())
    if content and content.root and is_tarball and not content.has_systemd:
        raise SeedError(
            f"image {hide_credentials(request.image)} ({content.os}) has no systemd, which starts "
            "the minion of a "
            "tarball; give install_from= packages or a script, or an image that has a minion"
        )


def _refuse_unpackaged(request: SeedRequest, content: Inspection) -> None:
    """Raise SeedError if the guest's repositories have no minion to install at boot."""
    is_packaged = minionpackages.is_packaged(content.os, has_systemd=content.has_systemd)
    if is_packaged or request.has_own_packages:
        return
    if minionpackages.distribution(content.os):
        reason = f"{content.os} has none in its own repositories"
    else:
        reason = "it is no distribution that is known to have one in its repositories"
    fetch_advice = f"run `{minionpackages.COMMAND}` on the master, give install_from="
    raise SeedError(
        f"image {hide_credentials(request.image)} has cloud-init and no salt-minion, and {reason}: "
        f"{fetch_advice if _may_be_fetched(content) else _OWN_SOURCE_ADVICE}, seed_method=nocloud "
        "if it "
        "comes to one by itself, or seed=False for a VM without one"
    )


def _refuse_unfit(request: SeedRequest, content: Inspection) -> None:
    if content.root is None:
        if request.asked != "auto":
            raise SeedError(
                f"image {hide_credentials(request.image)} cannot be seeded: there is no operating "
                "system in it"
            )
        return
    if not content.has_minion and not request.installs:
        raise SeedError(
            f"image {hide_credentials(request.image)} ({content.os}) has no salt-minion, and "
            "install=False; "
            "give another image, install=True, or seed=False"
        )
    if request.asked == "credentials":
        _refuse_without_credentials(hide_credentials(request.image), content)


def _refuse_without_credentials(image: str, content: Inspection) -> None:
    if not content.has_minion:
        raise SeedError(
            f"image {image} has no salt-minion, and credentials cannot install one; "
            "use seed_method=guestfs"
        )
    version = content.systemd_version
    if not content.has_systemd or (version and version < credentials.LEAST_SYSTEMD):
        raise SeedError(
            f"image {image} has {f'systemd {version}' if version else 'no systemd'}; credentials "
            f"need systemd {credentials.LEAST_SYSTEMD} or later"
        )
