"""Which seed method a guest gets: decided by what was asked for and by what its image has in it."""

from dataclasses import dataclass
from typing import Any

from saltvirt import access, minionpackages
from saltvirt.arguments import shown
from saltvirt.config import HostSettings
from saltvirt.errors import SeedError
from saltvirt.minionpackages import Package
from saltvirt.ops.seeding import install, unread
from saltvirt.seed import credentials, guest, users
from saltvirt.seed.model import Found, Installation

# These write into the disk, or hand over what must fit what is in it: the image is inspected first.
_INSPECTS = ("auto", "guestfs", "credentials")
_SEEING = "have python3-guestfs installed there: salt HOST state.apply hypervisor"
_VOUCHED = (
    "give seed_method=nocloud for an image that has cloud-init and a minion, or seed=False for a "
    "VM without one"
)

# Where what the master can fetch does not suit: to run that command would change nothing.
_ITS_OWN = (
    f"what `{minionpackages.COMMAND}` fetches does not suit it, as that needs systemd, on "
    f"{' or '.join(minionpackages.ARCHES)}: give install_from= packages or a script"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """
    What a seed method is chosen by, the image's content left out.

    asked
        One of our methods, or ``auto``.
    function
        The function of the minion that seeds instead, None for our own methods.
    install_from
        As :func:`saltvirt.ops.seeding.install.source` returns it.
    provided
        The minion on the file server that suits the image, where nothing else was said.
    is_networked
        An appliance that installs something gets a network.
    is_for_cloud_init
        There is something that cloud-init alone reads.
    has_ssh_keys, asks_for_ssh_keys
        There are keys of those who may log in; the call itself gives some.
    has_own_users, has_own_packages
        The user data says which users there are, or what the default user is called; where packages
        come from.
    why_blind
        Why this host cannot look into images, None if it can.
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
        """What a minion is installed from: what was said, else what the master has fetched."""
        return self.install_from or tuple(one.url for one in self.provided)

    @property
    def is_image_known(self) -> bool:
        """Whether what the image has in it decides, or is needed."""
        return not self.function and self.asked in _INSPECTS

    @property
    def is_image_inspected(self) -> bool:
        """Whether this host looks into the image for that."""
        return self.is_image_known and not self.why_blind


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedMethod:
    """
    How a VM is seeded.

    name
        One of our methods, or the function that the user named.
    install
        How a minion is installed, None if none is; its ``urls`` are still to be fetched.
    found
        What the image has in it, where that was needed.
    why
        Why it is this one, where nobody asked for it and the image did not say.
    ssh_user
        Who of the guest can be logged in as by SSH, None if nobody, or if that is not
        known; ``USER`` stands for the default user of an image that says nothing of itself.

    Warnings:
        What is known of the image that the guest will not read or serve, one line each.
    """

    name: str
    install: Installation | None = None
    found: Found | None = None
    why: str | None = None
    ssh_user: str | None = None
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return what ``dry_run=True`` shows."""
        return {
            "method": self.name,
            "install": self.install.kind if self.install else None,
            "install_from": [shown(url) for url in self.install.urls] if self.install else [],
            "os": self.found.os if self.found else None,
            **({"why": self.why} if self.why else {}),
            **({"warnings": list(self.warnings)} if self.warnings else {}),
        }


def refuse_host_mount(settings: HostSettings) -> None:
    """Raise SeedError unless the operator allowed that this host's kernel mounts guests' disks."""
    if settings.seed.get("allow_host_mount") is not True:
        raise SeedError(
            "mounting a guest's disk on this host lets its kernel read what a stranger may have "
            "made; use guestfs, or set virt:seed:allow_host_mount: True"
        )


def decide(wish: Wish, found: Found | None = None, failed: SeedError | None = None) -> SeedMethod:
    """
    Return the seed method of a VM; raise SeedError before anything is made if it cannot work.

    found
        What the image has in it; None if it was not inspected.
    failed
        Why it could not be inspected although this host can do such things.

    With neither, for an image that is to be inspected, what is known without that is returned.
    """
    if wish.function:
        if wish.asks_for_ssh_keys:
            raise SeedError(f"ssh_authorized_keys: seed_cmd {wish.function} is not given them")
        return SeedMethod(name=wish.function)
    if wish.asked == "credentials" and not wish.starts:
        raise SeedError("credentials are handed over when the VM starts; leave out start=False")
    if wish.is_image_inspected and found is None and failed is None:
        return SeedMethod(name=wish.asked, why="the image was not looked into yet")
    name, why = _name(wish, found, failed)
    how = _install(wish, name, found)
    _refuse_without_appliance(wish, name, how)
    _refuse_unread(wish, name, found)
    user = _ssh_user(wish, name, found)
    told = unread.warnings(wish.image, name, found, has_ssh_keys=wish.has_ssh_keys)
    return SeedMethod(name=name, install=how, found=found, why=why, ssh_user=user, warnings=told)


def _refuse_unread(wish: Wish, name: str, found: Found | None) -> None:
    """Raise SeedError if nothing in the guest would read what was asked for."""
    if name != "nocloud":
        if wish.is_for_cloud_init:
            raise SeedError(
                f"user_data and the guest's part of interfaces are for cloud-init; with "
                f"{name} nothing in the guest would read them"
            )
    elif wish.asks_for_ssh_keys and found is not None and not found.has_cloud_init:
        what = "cloud-init" if found.root else "operating system"
        raise SeedError(
            f"ssh_authorized_keys: image {shown(wish.image)} has no {what}, so nothing in it would "
            "read them"
        )


def _refuse_without_appliance(wish: Wish, name: str, how: Installation | None) -> None:
    """Refuse, where nobody can look, what writes into a disk all the same."""
    if wish.why_blind and (name == "guestfs" or (how and how.kind != "boot")):
        raise SeedError(
            f"image {shown(wish.image)} needs an appliance, and this host has none: "
            f"{wish.why_blind}; {_SEEING}"
        )


def _ssh_user(wish: Wish, name: str, found: Found | None) -> str | None:
    if not wish.has_ssh_keys or (found is not None and found.has_ssh_server is False):
        return None
    if name != "nocloud":
        return "root"
    if wish.has_own_users or (found is not None and found.root is None):
        return None
    return users.default_user(found.os if found else None) or access.SOME_USER


def _name(wish: Wish, found: Found | None, failed: SeedError | None) -> tuple[str, str | None]:
    """Return ``(method, why)``."""
    if found is None:
        return _unseen(wish, failed)
    _refuse_unfit(wish, found)
    if wish.asked != "auto":
        return wish.asked, None
    if found.root is None:
        return "nocloud", "there is no operating system in the image"
    # The cheapest safe one that the image supports; cloud-init sets up the network too.
    return ("nocloud" if found.has_cloud_init else "guestfs"), None


def _unseen(wish: Wish, failed: SeedError | None) -> tuple[str, str | None]:
    """Return ``(method, why)`` of an image that nobody has looked into."""
    if failed:
        if wish.asked != "auto":
            raise failed
        if wish.installs:
            raise SeedError(
                f"whether image {shown(wish.image)} has a salt-minion cannot be seen: {failed}; "
                f"{_VOUCHED}"
            )
        # The user says that it has one, and the seed of cloud-init does no harm.
        return "nocloud", str(failed)
    if wish.why_blind and wish.asked == "guestfs":
        raise SeedError(f"seed_method guestfs does not work on this host: {wish.why_blind}")
    if wish.why_blind and wish.asked == "auto":
        if wish.installs:
            raise SeedError(
                f"whether image {shown(wish.image)} has a salt-minion cannot be seen on this host: "
                f"{wish.why_blind}; {_SEEING}, or {_VOUCHED}"
            )
        return "nocloud", "nothing here could look into the image"
    return wish.asked, None


def _install(wish: Wish, name: str, found: Found | None) -> Installation | None:
    """Return how the minion is installed; nothing is fetched if there is one."""
    if not wish.installs or name == "credentials" or (found and found.has_minion):
        return None
    seen = found if found and found.root and name == "nocloud" else None
    if name == "guestfs" or (seen and wish.sources):
        return _in_appliance(wish, found)
    return _at_boot(wish, name, seen)


def _at_boot(wish: Wish, name: str, seen: Found | None) -> Installation:
    """Return how a guest installs its minion when it boots; refuse where that cannot work."""
    if wish.install_from:
        why = {
            "nocloud": "it is put into a system that was found in the image",
            "nbd": "a host never runs what is in a guest's disk",
        }[name]
        raise SeedError(f"install_from needs seed_method=auto or guestfs: {why}")
    if seen:
        _refuse_unpackaged(wish, seen)
    return Installation(kind="boot", script=guest.install() if name == "nbd" else None)


def _in_appliance(wish: Wish, found: Found | None) -> Installation:
    urls, arch = wish.sources, found.arch if found else None
    packages = () if wish.install_from else wish.provided
    _refuse_unstarted(wish, found)
    if found and not urls and not wish.is_networked and not _may_be_fetched(found):
        raise SeedError(
            f"image {shown(wish.image)} ({found.os}) has no salt-minion; {_ITS_OWN}, or set "
            "virt:seed:install_network: True to let the guest's own repositories be used"
        )
    try:
        return install.decided(urls, arch, is_networked=wish.is_networked, packages=packages)
    except SeedError as exc:
        raise SeedError(f"image {shown(wish.image)}: {exc}") from exc


def _may_be_fetched(found: Found) -> bool:
    return minionpackages.may_suit(found.os, found.arch, has_systemd=found.has_systemd)


def _refuse_unstarted(wish: Wish, found: Found | None) -> None:
    """Refuse a tarball where nothing would start its minion: it would never be heard of."""
    is_tarball = any(install.kind(url) == "tarball" for url in wish.install_from or ())
    if found and found.root and is_tarball and not found.has_systemd:
        raise SeedError(
            f"image {shown(wish.image)} ({found.os}) has no systemd, which starts the minion of a "
            "tarball; give install_from= packages or a script, or an image that has a minion"
        )


def _refuse_unpackaged(wish: Wish, found: Found) -> None:
    """Refuse a guest that would look for a minion where there is none, when it has booted."""
    is_packaged = minionpackages.is_packaged(found.os, has_systemd=found.has_systemd)
    if is_packaged or wish.has_own_packages:
        return
    if minionpackages.distribution(found.os):
        why = f"{found.os} has none in its own repositories"
    else:
        why = "it is no distribution that is known to have one in its repositories"
    fetched = f"run `{minionpackages.COMMAND}` on the master, give install_from="
    raise SeedError(
        f"image {shown(wish.image)} has cloud-init and no salt-minion, and {why}: "
        f"{fetched if _may_be_fetched(found) else _ITS_OWN}, seed_method=nocloud if it "
        "comes to one by itself, or seed=False for a VM without one"
    )


def _refuse_unfit(wish: Wish, found: Found) -> None:
    if found.root is None:
        if wish.asked != "auto":
            raise SeedError(
                f"image {shown(wish.image)} cannot be seeded: there is no operating system in it"
            )
        return
    if not found.has_minion and not wish.installs:
        raise SeedError(
            f"image {shown(wish.image)} ({found.os}) has no salt-minion, and install=False; "
            "give another image, install=True, or seed=False"
        )
    if wish.asked == "credentials":
        _refuse_without_credentials(shown(wish.image), found)


def _refuse_without_credentials(image: str, found: Found) -> None:
    if not found.has_minion:
        raise SeedError(
            f"image {image} has no salt-minion, and credentials cannot install one; "
            "use seed_method=guestfs"
        )
    version = found.systemd_version
    if not found.has_systemd or (version and version < credentials.LEAST_SYSTEMD):
        raise SeedError(
            f"image {image} has {f'systemd {version}' if version else 'no systemd'}; credentials "
            f"need systemd {credentials.LEAST_SYSTEMD} or later"
        )
