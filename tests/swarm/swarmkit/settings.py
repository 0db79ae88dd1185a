"""Where a swarm keeps its things, and what one is made of."""

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[2]
SWARMS = Path("/var/lib/saltvirt-lab")
SALTS = ("3008", "3006")
# Inside a swarm's own mount namespace; short, as a socket's path has at most 107 letters.
ROOT = Path("/run/swarm")
# Where a host that has a process of its own sees its own folder: VMs move only between hosts that
# have their files at the same paths.
OWN = ROOT / "own"
# As many hosts have a process each; more than that share a few.
MOST_FORKS = 250
SHARED_BY = 8


class SwarmError(Exception):
    """The swarm cannot do what was asked; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """
    What a swarm is made of.

    hosts, vms
        How many hosts, and how many VMs each has at first.
    salt
        The line of Salt, of master and hosts.
    processes
        Over how many the hosts are spread; 0: one each up to 250, more share eight.
    vcpus, memory_mib, disk_mib
        What each host can give to VMs.
    options
        Options of Salt's, for master and hosts alike.
    """

    hosts: int = 20
    vms: int = 50
    salt: str = "3008"
    processes: int = 0
    workers: int = 5
    vcpus: int = 32
    memory_mib: int = 131072
    disk_mib: int = 4 << 20
    options: dict = field(default_factory=dict)

    @property
    def ids(self):
        """The ids of the hosts."""
        return [f"h{number:04d}" for number in range(self.hosts)]

    @property
    def groups(self):
        """The ids that one process has, of each process."""
        count = self.processes or (self.hosts if self.hosts <= MOST_FORKS else SHARED_BY)
        return [group for n in range(count) if (group := self.ids[n::count])]

    @property
    def is_apart(self):
        """Whether each host has a process, and so a view of files, of its own."""
        return len(self.groups) == self.hosts

    @property
    def python(self):
        """The Python of the environment with that line of Salt."""
        return f"/opt/salt-{self.salt}/bin/python3"

    def written(self):
        """Return it as text, for :meth:`read`."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text):
        """Return what :meth:`written` has returned."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in json.loads(text).items() if name in known})


@dataclass(frozen=True)
class Place:
    """The folder, on the machine, by which a swarm is found; all else is in its own memory."""

    folder: Path

    @property
    def pid(self):
        """The file with the process id of the swarm's first process."""
        return self.folder / "pid"

    @property
    def log(self):
        """What its first process says."""
        return self.folder / "log"

    @property
    def ready(self):
        """It is there when all of the swarm is up, and says how long that took."""
        return self.folder / "ready"

    @property
    def spec(self):
        """What the swarm is made of."""
        return self.folder / "spec"


def place():
    """
    Return the place of this environment: one per checkout, unless SALTVIRT_SWARM names one.

    Where tests run in several processes, each has its own.
    """
    name = os.environ.get("SALTVIRT_SWARM")
    if name is None:
        name = hashlib.sha256(str(CHECKOUT).encode()).hexdigest()[:8]
    name += os.environ.get("PYTEST_XDIST_WORKER", "")
    if not name.isalnum():
        raise SwarmError(f"SALTVIRT_SWARM: {name!r} has more than letters and digits")
    return Place(SWARMS / f"swarm-{name}")
