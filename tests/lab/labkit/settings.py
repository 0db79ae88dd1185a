"""Where the lab keeps its things, and which addresses it uses."""

import os
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
CACHE = Path(os.environ.get("SALTVIRT_LAB_CACHE", "/var/cache/saltvirt-lab"))
SALTS = {"3008": "salt==3008.*", "3006": "salt==3006.25"}

MAX_ROOT = 50


class LabError(Exception):
    """The lab cannot do what was asked; the message says why and what to do."""


@dataclass(frozen=True)
class Lab:
    """One lab: its state folder, its Salt line and its addresses."""

    root: Path
    salt: str

    @property
    def master_ip(self):
        """The master's address on the segment."""
        return "10.77.0.1"

    def host_ip(self, host):
        """The address of ``hyperN`` on the segment."""
        return f"10.77.1.{int(host.removeprefix('hyper'))}"

    def node_dir(self, node):
        """The folder with everything that belongs to one node."""
        return self.root / node

    @property
    def venv(self):
        """The virtual environment whose Salt the lab runs."""
        return CACHE / f"venv-{self.salt}"

    @property
    def fileroot(self):
        """What the master serves beside the checkout: the images."""
        return CACHE / f"files-{self.salt}"

    @property
    def master_conf(self):
        """The master's configuration folder."""
        return self.node_dir("master") / "salt" / "etc"

    def minion_conf(self, host):
        """A minion's configuration folder."""
        return self.node_dir(host) / "salt" / "etc"


def lab_from_environment(salt=None):
    """Return the lab of this environment: one per Salt line, unless told otherwise."""
    salt = salt or os.environ.get("SALTVIRT_LAB_SALT", "3008")
    if salt not in SALTS:
        raise LabError(f"unknown Salt line {salt!r}: use one of {', '.join(sorted(SALTS))}")
    root = os.environ.get("SALTVIRT_LAB_ROOT", f"/var/lib/saltvirt-lab-{salt}")
    if len(root) > MAX_ROOT:
        # Salt's sockets below it must fit into the kernel's 107 characters.
        raise LabError(f"the lab's folder {root} is longer than {MAX_ROOT} characters")
    return Lab(root=Path(root), salt=salt)
