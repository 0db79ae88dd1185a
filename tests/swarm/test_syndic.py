"""A syndic on Salt 3006: `salt` on the master above it reaches the hosts below, the runner not."""

import json
import subprocess
import time

import pytest
from conftest import Swarm, swarm_of
from swarmkit import conf, life
from swarmkit.settings import ROOT, Spec

pytestmark = pytest.mark.nightly
# Both masters have Salt's own ports: a syndic on other ones subscribes to its own master.
ABOVE, BELOW, ADDRESS = ROOT / "above", ROOT / "below", "127.0.0.2"
UP_S = 180


def master_above(spec):
    """Return the configuration of the master above."""
    folders = {key: str(ABOVE / name) for key, name in _FOLDERS.items()}
    given = {**conf.master(spec), **folders, "interface": ADDRESS, "root_dir": str(ABOVE)}
    return {**given, "order_masters": True, "auto_accept": True}


_FOLDERS = {"pki_dir": "pki", "cachedir": "cache", "sock_dir": "s", "pidfile": "pid"}
_FOLDERS["log_file"] = "log"


def begin(swarm, program, folder):
    """Start a daemon of Salt's in a swarm."""
    python = life.spec_of(swarm.place).python
    argv = life.inside(
        swarm.place, [python, python.replace("python3", program), "-c", folder, "-l", "error"]
    )
    with (swarm.place.folder / f"{program}.out").open("wb") as said:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said)


class Above(Swarm):
    """The master above, as an operator has it."""

    def _done(self, program, words, config):
        # From the folder of the master below.
        return super()._done(program, words, f"../above/{config}")


@pytest.fixture(scope="module")
def above():
    """A master with nothing but a syndic, whose master has three hosts."""
    with swarm_of(Spec(hosts=3, vms=1, salt="3006"), "syndic") as below:
        below.sh('mkdir -p "$1/etc" "$2"', ABOVE, BELOW)
        life.write(below.place, ABOVE / "etc/master", json.dumps(master_above(below.spec)))
        lower = {**conf.master(below.spec), "syndic_master": ADDRESS}
        life.write(below.place, BELOW / "master", json.dumps(lower))
        minion = {"id": "below", "root_dir": str(BELOW), "user": "root"}
        life.write(below.place, BELOW / "minion", json.dumps(minion))
        daemons = (("salt-master", ABOVE / "etc"), ("salt-syndic", BELOW))
        processes = [begin(below, *one) for one in daemons]
        it = Above(below.place, below.spec)
        try:
            yield up(it)
        finally:
            it.close()
            for process in processes:
                process.kill()
                process.wait(10)


def up(above):
    """Return the master above when the hosts behind the syndic answer."""
    end = time.monotonic() + UP_S
    while "h0002" not in above.salt("*", "test.ping", wait_s=10).out:
        assert time.monotonic() < end, "nobody answers behind the syndic"
    return above


@pytest.mark.parametrize("target", ["*", "h000[0-2]", "L@h0000,h0001,h0002"])
def test_salt_reaches_all_hosts_behind_a_syndic(above, target):
    kind = ["-C"] if "@" in target else []
    done = above.salt(*kind, target, "virt.vm_state")
    assert set(done.data) == {"h0000", "h0001", "h0002"}, done.out + done.err
    assert all(list(vms.values()) == ["running"] for vms in done.data.values())


def test_the_runner_there_says_what_to_do(above):
    done = above.run("virt.list")
    assert done.code == 1
    assert "docs/cells.md" in done.data["error"]
