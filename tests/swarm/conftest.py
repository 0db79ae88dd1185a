"""Swarms of the tests' own, beside one that somebody has up."""

import functools
import json
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml
from swarmkit import conf, faults, life
from swarmkit.settings import CHECKOUT, Spec, place
from warmswarm import WarmSwarm

NAMES = {"3008": "a", "3006": "b"}
# As long as the longest command of a test may take.
_COMMAND_S = 900
# How long salt waits for the word of who is silent.
SHORT = {"gather_job_timeout": 2}
PROFILE = yaml.safe_load((CHECKOUT / "docs/profiles/master-100.conf").read_text())
# With two workers each has two files at once: a life, as long as half of all, beside a short one.
FIRST = ("test_life.py", "test_cells.py", "test_lifelaws.py")


def pytest_collection_modifyitems(items):
    """Have the tests of this folder begin with those that take longest."""
    places = [at for at, one in enumerate(items) if one.path.parent == Path(__file__).parent]
    own = [items[at] for at in places]
    own.sort(key=lambda one: FIRST.index(one.path.name) if one.path.name in FIRST else len(FIRST))
    for at, one in zip(places, own, strict=True):
        items[at] = one


@dataclass(frozen=True)
class Done:
    """How a command ended, and how long it took."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def data(self):
        """The JSON that it printed."""
        start = min((at for at in map(self.out.find, "{[") if at >= 0), default=-1)
        assert start >= 0, f"no JSON: {self.out}{self.err}"
        return json.JSONDecoder().raw_decode(self.out[start:])[0]


class Swarm:
    """What a user of a swarm can do, and what an inspector can see."""

    def __init__(self, place_, spec):
        self.place, self.spec = place_, spec

    @functools.cached_property
    def warm(self):
        """The process inside whose forks commands are: to import Salt takes half a second."""
        return WarmSwarm(self)

    def close(self):
        """End that process, if there is one."""
        if "warm" in vars(self):
            self.warm.close()

    def _done(self, program, words, config):
        said = self.warm.command(program, words, config).wait(_COMMAND_S)
        return Done(said["code"], said["out"], said["err"], said["seconds"])

    def run(self, *words, config="etc"):
        """Run salt-run for its data."""
        return self._done("salt-run", [*words, "--out=json"], config)

    def shown(self, *words, config="etc"):
        """Run salt-run for what an operator sees."""
        return self._done("salt-run", words, config)

    def salt(self, target, *words, wait_s=20, config="etc"):
        """Run salt for its data; who is silent is waited so long, and 2 s more."""
        return self._done("salt", [target, *words, "--static", "-t", wait_s, "--out=json"], config)

    def begin(self, *words):
        """Start a salt-run of its own, that may be sent signals, and return the process."""
        argv = life.salt(self.place, "salt-run", [*map(str, words), "--out=json"])
        return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @staticmethod
    def end(process, timeout_s=120):
        """Wait for a salt-run that was begun."""
        begin = time.monotonic()
        out, err = process.communicate(timeout=timeout_s)
        return Done(process.returncode, out, err, time.monotonic() - begin)

    def sh(self, script, *words):
        """Run a shell script inside and return its output."""
        return life.run(self.place, ["sh", "-euc", script, "sh", *words])

    def domains(self, host):
        """Return the domains of a host, as the stand-in's file has them."""
        return json.loads(self.sh('cat "$1"', conf.HOSTS / host / "libvirt/domains.json"))[
            "domains"
        ]

    def pid(self, host):
        """Return the process id of a host, as it is inside."""
        return self.sh('cat "$1"', conf.HOSTS / host / "pid")

    @contextmanager
    def failing(self, *rules):
        """Have things go wrong until the block ends."""
        life.write(self.place, conf.FAULTS, json.dumps(faults.checked(rules)))
        try:
            yield
        finally:
            life.write(self.place, conf.FAULTS, "[]")

    def ping(self, hosts=None, wait_s=20):
        """Return who answers of some hosts."""
        found = self.salt("-L", ",".join(hosts or self.spec.ids), "test.ping", wait_s=wait_s).data
        return {host for host, one in found.items() if one is True}

    def wait_for(self, hosts, limit_s=60):
        """Wait until hosts answer."""
        end = time.monotonic() + limit_s
        while not set(hosts) <= self.ping(hosts, wait_s=3):
            assert time.monotonic() < end, f"not all of {hosts} answer within {limit_s} s"


def vms_by_host(listed):
    """Return ``{host: names}`` of what virt.list said."""
    return {
        host: sorted(one for names in by.values() for one in names) for host, by in listed.items()
    }


def at_first(spec):
    """Return the same as it is at first."""
    return {host: [f"vm-{host}-{number:03d}" for number in range(spec.vms)] for host in spec.ids}


@contextmanager
def swarm_of(spec, name=None):
    """Bring a swarm up, and take it down; one that is up beside others has a name of its own."""
    name = name or NAMES[spec.salt]
    own = replace(place(), folder=place().folder.with_name(f"{place().folder.name}{name}"))
    life.down(own)
    life.up(own, spec)
    it = Swarm(own, spec)
    try:
        yield it
    finally:
        it.close()
        life.down(own)


@pytest.fixture(scope="session")
def swarm():
    """Twenty hosts with five VMs each, on Salt 3008, their master by our profile."""
    with swarm_of(Spec(hosts=20, vms=5, options={**PROFILE, **SHORT})) as it:
        yield it


@pytest.fixture(scope="module")
def older():
    """Five hosts of five VMs, in two processes, on Salt 3006, their master by our profile."""
    with swarm_of(Spec(hosts=5, vms=5, salt="3006", processes=2, options=PROFILE)) as it:
        yield it
