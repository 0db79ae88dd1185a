"""Where the lab keeps its things, which hosts it has, and which addresses they get."""

import os
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
CACHE = Path(os.environ.get("SALTVIRT_LAB_CACHE", "/var/cache/saltvirt-lab")).absolute()
LABS = Path("/var/lib/saltvirt-lab")
# Every process of a lab has it in its environment, with the lab's folder.
MARK = "SALTVIRT_LAB"
SALTS = {"3008": "salt==3008.*", "3006": "salt==3006.25"}
RELEASES = ("bookworm", "trixie", "sid")
NETWORK_MANAGERS = ("networkd", "ifupdown", "networkmanager")
SWITCH, MASTER = "switch", "master"
SWITCH_IP, MASTER_IP = "10.77.0.2", "10.77.0.1"
MOST_HOSTS = 32


class LabError(Exception):
    """The lab cannot do what was asked; the message says why and what to do."""


@dataclass(frozen=True)
class Host:
    """A hypervisor of the lab: its Debian release and who keeps its network."""

    name: str
    release: str = "bookworm"
    network: str = "networkd"

    @property
    def number(self):
        """The N of ``hyperN``."""
        return int(self.name.removeprefix("hyper"))

    @property
    def address(self):
        """What the lab's DHCP server leases to it."""
        return f"10.77.1.{self.number}"

    @property
    def mac(self):
        """The MAC of its eth0."""
        return f"52:54:00:77:01:{self.number:02x}"


def host(name, release=None):
    """Return the host of that name: by default Debian 12, 12, 13, and again."""
    digits = name.removeprefix("hyper")
    if name == digits or not digits.isdigit() or not 1 <= int(digits) <= MOST_HOSTS:
        raise LabError(f"{name} is not a host of the lab: hyper1 to hyper{MOST_HOSTS}")
    if release not in (None, *RELEASES):
        raise LabError(f"unknown release {release!r}: use one of {', '.join(RELEASES)}")
    at = (int(digits) - 1) % 3
    usual = ("bookworm", "bookworm", "trixie")[at]
    return Host(name, release or usual, NETWORK_MANAGERS[at])


@dataclass(frozen=True)
class Lab:
    """One lab: its state folder and its Salt line."""

    root: Path
    salt: str

    def host_ip(self, name):
        """The address of ``hyperN`` on the segment."""
        return host(name).address

    def node_dir(self, node):
        """The folder with everything that belongs to one node."""
        return self.root / node

    @property
    def shared(self):
        """The folder that all hosts see as /mnt/shared."""
        return self.root / "shared"

    @property
    def images(self):
        """The folder of the images, which the master serves as salt://images."""
        return CACHE / f"files-{self.salt}/images"


def lab_from_environment(salt=None):
    """Return the lab of this environment: one per Salt line, unless told otherwise."""
    salt = salt or os.environ.get("SALTVIRT_LAB_SALT", "3008")
    if salt not in SALTS:
        raise LabError(f"unknown Salt line {salt!r}: use one of {', '.join(sorted(SALTS))}")
    return Lab(root=Path(os.environ.get("SALTVIRT_LAB_ROOT", LABS / salt)).absolute(), salt=salt)
