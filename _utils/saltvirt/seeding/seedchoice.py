"""Choose a guest's seed method by the request and the image's content; warn of what is not read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from saltvirt.core import guestaccess
from saltvirt.core.arguments import hide_credentials
from saltvirt.core.errors import SeedError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.seedmethods import (
    AUTO,
    CREDENTIAL,
    GUESTFS,
    METHODS,
    NOCLOUD,
    SeedMethod,
    reads_image,
)
from saltvirt.seeding import firstboot, install
from saltvirt.seeding.seedmodel import Inspection, Installation
from saltvirt.seeding.shared import minionpackages
from saltvirt.seeding.shared.minionpackages import Package

_OURS = "NoCloud"


def find_unread_parts(
    image: str, method: SeedMethod, content: Inspection | None, *, has_ssh_keys: bool
) -> tuple[str, ...]:
    """
    Return the warnings to show before a VM is made, one line each.

    content
        The image's content; None if the image was not inspected: then there are no warnings.
    """
    if content is None or content.root is None:
        return ()
    return tuple(
        _find_warnings(
            f"image {hide_credentials(image)}", method, content, has_ssh_keys=has_ssh_keys
        )
    )


def _find_warnings(
    image: str, method: SeedMethod, content: Inspection, *, has_ssh_keys: bool
) -> Iterator[str]:
    if method.is_for_cloud_init and content.has_cloud_init and _reads_other_sources(content):
        datasource_names = ", ".join(content.datasources or ["nowhere"])
        yield (
            f"cloud-init of {image} looks for its data in {datasource_names} alone "
            f"(datasource_list), not in {_OURS}: it reads neither the minion's identity nor "
            f"ssh_authorized_keys; add {_OURS} there, or give seed_method={GUESTFS.name}"
        )
    if has_ssh_keys and not content.has_ssh_server:
        yield (
            f"ssh_authorized_keys let no user in yet: {image} has no SSH server; install one in "
            "it, or by user_data (packages: [openssh-server])"
        )


def _reads_other_sources(content: Inspection) -> bool:
    return content.datasources is not None and _OURS not in content.datasources


# By libguestfs' name of the distribution (guestfs(3), inspect_get_distro). Source: the images that
# each distribution offers, and cloud-init's config/cloud.cfg.tmpl.
DEFAULT_USERS = {
    "almalinux": "almalinux",
    "alpinelinux": "alpine",
    "archlinux": "arch",
    "centos": "cloud-user",
    "debian": "debian",
    "fedora": "fedora",
    "opensuse": "opensuse",
    "rhel": "cloud-user",
    "rocky": "rocky",
    "sles": "sles",
    "ubuntu": "ubuntu",
}


def default_user(system: str | None) -> str | None:
    """
    Return the default user of a distribution's cloud images, None if unknown.

    system
        The worker's name of the system, such as ``debian 12``.
    """
    return DEFAULT_USERS.get((system or "").partition(" ")[0])


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

    method_name
        One of :data:`saltvirt.core.seedmethods.NAMES`.
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
    inspection_obstacle
        Why this host cannot inspect images, None if it can.
    """

    image: str
    method_name: str = AUTO
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
    inspection_obstacle: str | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """The URLs to install a minion from: the requested ones, else the master's packages."""
        return self.install_from or tuple(package.url for package in self.provided)

    @property
    def reads_image(self) -> bool:
        """Whether the decision depends on the image's content."""
        return not self.function and reads_image(self.method_name)

    @property
    def is_image_inspected(self) -> bool:
        """Whether this host inspects the image for the decision."""
        return self.reads_image and not self.inspection_obstacle

    @property
    def image_text(self) -> str:
        """The image in messages, without the secrets of its URL."""
        return f"image {hide_credentials(self.image)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedDecision:
    """
    How a VM is seeded; ``warnings`` are lines from :func:`find_unread_parts`.

    name
        The seed method's name, or the function that the user named.
    install
        How a minion is installed, None if none is; its ``urls`` are still to be fetched.
    content
        The image's content, if it was needed.
    reason
        The reason for the method, if neither the request nor the image decides it.
    ssh_user
        The guest's user for logins by SSH, None if there is none or it is unknown; ``USER`` stands
        for the default user of an unknown image.
    """

    name: str
    install: Installation | None = None
    content: Inspection | None = None
    reason: str | None = None
    ssh_user: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def method(self) -> SeedMethod | None:
        """The seed method, None for a function or while ``auto`` has not chosen yet."""
        return METHODS.get(self.name)

    def to_dict(self) -> dict[str, Any]:
        """Return the method as ``dry_run=True`` shows it."""
        return {
            "method": self.name,
            "install": self.install.kind if self.install else None,
            "install_from": [hide_credentials(url) for url in self.install.urls]
            if self.install
            else [],
            "os": self.content.os if self.content else None,
            **({"why": self.reason} if self.reason else {}),
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
) -> SeedDecision:
    """
    Return how a VM is seeded; raise SeedError if seeding cannot work.

    content
        The image's content; None if the image was not inspected.
    inspection_error
        The error of a failed inspection.

    Without either, the decision on an image that is still to be inspected is provisional.
    """
    if request.function:
        if request.asks_for_ssh_keys:
            raise SeedError(f"ssh_authorized_keys: seed_cmd {request.function} is not given them")
        return SeedDecision(name=request.function)
    requested_method = METHODS.get(request.method_name)
    if requested_method and requested_method.writes_to == CREDENTIAL and not request.starts:
        raise SeedError(
            f"{requested_method.name} are handed over when the VM starts; leave out start=False"
        )
    if request.is_image_inspected and content is None and inspection_error is None:
        return SeedDecision(name=request.method_name, reason="the image was not looked into yet")
    method, reason = _choose_method(request, requested_method, content, inspection_error)
    installation = _choose_install(request, method, content)
    _refuse_without_appliance(request, method, installation)
    _refuse_unread(request, method, content)
    return SeedDecision(
        name=method.name,
        install=installation,
        content=content,
        reason=reason,
        ssh_user=_ssh_user(request, method, content),
        warnings=find_unread_parts(
            request.image, method, content, has_ssh_keys=request.has_ssh_keys
        ),
    )


def _refuse_unread(request: SeedRequest, method: SeedMethod, content: Inspection | None) -> None:
    """Raise SeedError if nothing in the guest would read data that the call gives."""
    if not method.is_for_cloud_init:
        if request.is_for_cloud_init:
            raise SeedError(
                f"user_data and the guest's part of interfaces are for cloud-init; with "
                f"{method.name} nothing in the guest would read them"
            )
    elif request.asks_for_ssh_keys and content is not None and not content.has_cloud_init:
        missing_part = "cloud-init" if content.root else "operating system"
        raise SeedError(
            f"ssh_authorized_keys: {request.image_text} has no {missing_part}, so nothing in it "
            "would read them"
        )


def _refuse_without_appliance(
    request: SeedRequest, method: SeedMethod, installation: Installation | None
) -> None:
    """Raise SeedError if the decision needs an appliance and this host has none."""
    is_needed = method.needs_appliance or (installation and installation.kind != "boot")
    if request.inspection_obstacle and is_needed:
        raise SeedError(
            f"{request.image_text} needs an appliance, and this host has none: "
            f"{request.inspection_obstacle}; {_APPLIANCE_ADVICE}"
        )


def _ssh_user(request: SeedRequest, method: SeedMethod, content: Inspection | None) -> str | None:
    if not request.has_ssh_keys or (content is not None and not content.has_ssh_server):
        return None
    if not method.is_for_cloud_init:
        return "root"
    if request.has_own_users or (content is not None and content.root is None):
        return None
    return default_user(content.os if content else None) or guestaccess.SOME_USER


def _choose_method(
    request: SeedRequest,
    requested_method: SeedMethod | None,
    content: Inspection | None,
    inspection_error: SeedError | None,
) -> tuple[SeedMethod, str | None]:
    """Return ``(method, reason)``; ``requested_method`` is None for ``auto``."""
    if content is None:
        return _choose_unseen(request, requested_method, inspection_error)
    _refuse_unfit(request, requested_method, content)
    if requested_method:
        return requested_method, None
    if content.root is None:
        return NOCLOUD, "there is no operating system in the image"
    # The cheapest safe method that the image supports; cloud-init sets up the network too.
    return (NOCLOUD if content.has_cloud_init else GUESTFS), None


def _choose_unseen(
    request: SeedRequest, requested_method: SeedMethod | None, inspection_error: SeedError | None
) -> tuple[SeedMethod, str | None]:
    """Return ``(method, reason)`` for an image that was not inspected."""
    obstacle = request.inspection_obstacle
    if requested_method:
        if inspection_error:
            raise inspection_error
        if obstacle and requested_method.needs_appliance:
            raise SeedError(
                f"seed_method {requested_method.name} does not work on this host: {obstacle}"
            )
        return requested_method, None
    if request.installs:
        place, remedy = ("", "") if inspection_error else (" on this host", _APPLIANCE_ADVICE)
        raise SeedError(
            f"whether {request.image_text} has a salt-minion is not known{place}: "
            f"{inspection_error or obstacle}; {f'{remedy}, or ' if remedy else ''}{_SKIP_ADVICE}"
        )
    # With install=False the user states that there is a minion; a NoCloud seed does no harm.
    return NOCLOUD, str(inspection_error or "nothing here could look into the image")


def _choose_install(
    request: SeedRequest, method: SeedMethod, content: Inspection | None
) -> Installation | None:
    """Return how the minion is installed; None if the image has a minion, or gets none."""
    if not (request.installs and method.installs_minion) or (content and content.has_minion):
        return None
    cloud_content = content if content and content.root and method.is_for_cloud_init else None
    if method.needs_appliance or (cloud_content and request.sources):
        return _install_in_appliance(request, content)
    return _install_at_boot(request, method, cloud_content)


def _install_at_boot(
    request: SeedRequest, method: SeedMethod, content: Inspection | None
) -> Installation:
    """Return how a guest installs its minion at boot; raise SeedError if that cannot work."""
    if request.install_from:
        raise SeedError(
            f"install_from needs seed_method=auto or {GUESTFS.name}: {method.no_install_from}"
        )
    if content:
        _refuse_unpackaged(request, content)
    script = None if method.is_for_cloud_init else firstboot.install()
    return Installation(kind="boot", script=script)


def _install_in_appliance(request: SeedRequest, content: Inspection | None) -> Installation:
    urls, arch = request.sources, content.arch if content else None
    packages = () if request.install_from else request.provided
    _refuse_unstarted(request, content)
    if content and not urls and not request.is_networked and not _may_be_fetched(content):
        raise SeedError(
            f"{request.image_text} ({content.os}) has no salt-minion; {_OWN_SOURCE_ADVICE}, or set "
            "virt:seed:install_network: True to let the guest's own repositories be used"
        )
    try:
        return install.decide(urls, arch, is_networked=request.is_networked, packages=packages)
    except SeedError as exc:
        raise SeedError(f"{request.image_text}: {exc}") from exc


def _may_be_fetched(content: Inspection) -> bool:
    return minionpackages.may_suit(content.os, content.arch, has_systemd=content.has_systemd)


def _refuse_unstarted(request: SeedRequest, content: Inspection | None) -> None:
    """Raise SeedError for a tarball without systemd: nothing would start the minion."""
    is_tarball = any(install.kind(url) == "tarball" for url in request.install_from or ())
    if content and content.root and is_tarball and not content.has_systemd:
        raise SeedError(
            f"{request.image_text} ({content.os}) has no systemd, which starts the minion of a "
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
        f"{request.image_text} has cloud-init and no salt-minion, and {reason}: "
        f"{fetch_advice if _may_be_fetched(content) else _OWN_SOURCE_ADVICE}, "
        f"seed_method={NOCLOUD.name} if it gets one by itself, or seed=False for a VM without "
        "one"
    )


def _refuse_unfit(
    request: SeedRequest, requested_method: SeedMethod | None, content: Inspection
) -> None:
    """Raise SeedError if an image has not what the request, or the requested method, needs."""
    if content.root is None:
        if requested_method:
            raise SeedError(
                f"{request.image_text} cannot be seeded: there is no operating system in it"
            )
        return
    if not content.has_minion and not request.installs:
        raise SeedError(
            f"{request.image_text} ({content.os}) has no salt-minion, and install=False; give "
            "another image, install=True, or seed=False"
        )
    if requested_method:
        _refuse_unsupported(request.image_text, requested_method, content)


def _refuse_unsupported(image_text: str, method: SeedMethod, content: Inspection) -> None:
    """Raise SeedError if an image lacks what a seed method needs."""
    if not (content.has_minion or method.installs_minion):
        raise SeedError(
            f"{image_text} has no salt-minion, and {method.name} cannot install one; use "
            f"seed_method={GUESTFS.name}"
        )
    least, version = method.least_systemd, content.systemd_version
    if least and (not content.has_systemd or (version and version < least)):
        raise SeedError(
            f"{image_text} has {f'systemd {version}' if version else 'no systemd'}; {method.name} "
            f"need systemd {least} or later"
        )
