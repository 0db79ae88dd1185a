"""Which seed method a guest gets: decided by what was asked for and by what its image has in it."""

from dataclasses import dataclass
from typing import Any

from saltvirt.arguments import shown
from saltvirt.config import HostSettings
from saltvirt.errors import SeedError
from saltvirt.ops.seeding import install
from saltvirt.seed import credentials, guest
from saltvirt.seed.model import Found, Installation

# These write into the disk, or hand over what must fit what is in it: the image is inspected first.
_INSPECTS = ("auto", "guestfs", "credentials")


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
    is_networked
        An appliance that installs something gets a network.
    is_for_cloud_init
        There is something that cloud-init alone reads.
    why_blind
        Why this host cannot look into images, None if it can.
    """

    image: str
    asked: str = "auto"
    function: str | None = None
    install_from: tuple[str, ...] | None = None
    installs: bool = True
    starts: bool = True
    is_networked: bool = False
    is_for_cloud_init: bool = False
    why_blind: str | None = None

    @property
    def is_image_inspected(self) -> bool:
        """Whether what the image has in it decides, or is needed."""
        return not self.function and self.asked in _INSPECTS and not self.why_blind


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
    """

    name: str
    install: Installation | None = None
    found: Found | None = None
    why: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return what ``dry_run=True`` shows."""
        return {
            "method": self.name,
            "install": self.install.kind if self.install else None,
            "install_from": [shown(url) for url in self.install.urls] if self.install else [],
            "os": self.found.os if self.found else None,
            **({"why": self.why} if self.why else {}),
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
        return SeedMethod(name=wish.function)
    if wish.asked == "credentials" and not wish.starts:
        raise SeedError("credentials are handed over when the VM starts; leave out start=False")
    if wish.is_image_inspected and found is None and failed is None:
        return SeedMethod(name=wish.asked, why="the image was not looked into yet")
    name, why = _name(wish, found, failed)
    if name != "nocloud" and wish.is_for_cloud_init:
        raise SeedError(
            f"user_data and the guest's part of interfaces are for cloud-init; with "
            f"{name} nothing in the guest would read them"
        )
    return SeedMethod(name=name, install=_install(wish, name, found), found=found, why=why)


def _name(wish: Wish, found: Found | None, failed: SeedError | None) -> tuple[str, str | None]:
    """Return ``(method, why)``."""
    if found is None:
        return _unseen(wish, failed)
    _refuse_unfit(wish, found)
    if wish.asked != "auto":
        return wish.asked, None
    if found.root is None:
        return "nocloud", "there is no operating system in the image"
    # The cheapest safe one that the image supports.
    is_put_in = wish.install_from is not None and not found.has_minion
    return ("nocloud" if found.has_cloud_init and not is_put_in else "guestfs"), None


def _unseen(wish: Wish, failed: SeedError | None) -> tuple[str, str | None]:
    """Return ``(method, why)`` of an image that nobody has looked into."""
    if failed:
        if wish.asked != "auto":
            raise failed
        # Whatever is wrong with it, the seed of cloud-init does no harm.
        return "nocloud", str(failed)
    if wish.why_blind and wish.asked == "guestfs":
        raise SeedError(f"seed_method guestfs does not work on this host: {wish.why_blind}")
    if wish.why_blind and wish.asked == "auto":
        return "nocloud", "nothing here could look into the image"
    return wish.asked, None


def _install(wish: Wish, name: str, found: Found | None) -> Installation | None:
    """Return how the minion is installed; nothing is fetched if there is one."""
    if not wish.installs or name == "credentials" or (found and found.has_minion):
        return None
    if name == "guestfs":
        arch = found.arch if found else None
        try:
            return install.decided(wish.install_from, arch, is_networked=wish.is_networked)
        except SeedError as exc:
            raise SeedError(f"image {shown(wish.image)}: {exc}") from exc
    if wish.install_from:
        why = {
            "nocloud": "cloud-init installs from the guest's own repositories",
            "nbd": "a host never runs what is in a guest's disk",
        }[name]
        raise SeedError(f"install_from needs seed_method=guestfs: {why}")
    return Installation(kind="boot", script=guest.install() if name == "nbd" else None)


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
