"""Two swarms as cells of one cloud: a wire between them, and a salt-api with TLS in one."""

import json
import subprocess
import time
from pathlib import Path

import authorities
from swarmkit import conf, life

TOP, WEST, PORT = "10.99.0.1", "10.99.0.2", 8000
USER, PASSWORD = "top", "a-password-that-nobody-may-see"
CA, CREDENTIALS = conf.MASTER / "west-ca.pem", conf.MASTER / "west.yaml"
NOBODY = conf.MASTER / "nobody.yaml"
_CERT, _KEY, _USERS = (conf.MASTER / f"api.{end}" for end in ("crt", "key", "users"))
_UP_S = 60
CELL = {
    "url": f"https://{WEST}:{PORT}",
    "ca": str(CA),
    "credentials": str(CREDENTIALS),
}
# As docs/cells.md says.
API = {
    "rest_cherrypy": {
        "host": WEST,
        "port": PORT,
        "ssl_crt": str(_CERT),
        "ssl_key": str(_KEY),
    },
    "netapi_enable_clients": ["runner", "runner_async"],
    "external_auth": {
        "file": {
            "^filename": str(_USERS),
            "^hashtype": "sha512",
            USER: [{"@runner": ["virt[.]"]}],
            "reader": [{"@runner": ["virt.list", "virt.find"]}],
        }
    },
}


def wire(top, west):
    """Lay a wire between the networks of two swarms; it goes with the first of them."""
    one, other = life.pid_of(top.place), life.pid_of(west.place)
    words = ["cells0", "netns", str(one), "type", "veth", "peer", "name", "cells0"]
    subprocess.run(["ip", "link", "add", *words, "netns", str(other)], check=True)
    for swarm, address in ((top, TOP), (west, WEST)):
        swarm.sh('ip addr add "$1/24" dev cells0; ip link set cells0 up', address)


def certificates(top, west):
    """Give a salt-api a certificate, and the top the authority that has signed it."""
    authority, certificate, private = authorities.of_address(WEST)
    life.write(top.place, CA, authority)
    life.write(west.place, _CERT, certificate)
    life.write(west.place, _KEY, private)


def users(top, west):
    """Have the cell know the top, and write who that is to a file of the top's."""
    digest = west.sh('printf %s "$1" | sha512sum | cut -d" " -f1', PASSWORD)
    life.write(west.place, _USERS, f"{USER}:{digest}\nreader:{digest}\n")
    for path, user in ((CREDENTIALS, USER), (NOBODY, "reader")):
        who = {"username": user, "password": PASSWORD, "eauth": "file"}
        life.write(top.place, path, json.dumps(who))
        top.sh('chmod 600 "$1"', path)


def configure(top, name, **virt):
    """Write another configuration of the top's master: with cells."""
    folder = conf.MASTER / name
    top.sh('mkdir -p "$1"', folder)
    given = {**conf.master(top.spec), "virt": {"timeout_s": 20, **virt}}
    life.write(top.place, folder / "master", json.dumps(given))


class Api:
    """The salt-api of a swarm."""

    def __init__(self, swarm):
        self._swarm, self._process = swarm, None

    def start(self):
        """Start it, and wait until it answers."""
        argv = life.salt(self._swarm.place, "salt-api", ["-l", "error"])
        with (self._swarm.place.folder / "api.out").open("ab") as said:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said
            )
        self._wait()

    def _wait(self):
        end, script = time.monotonic() + _UP_S, 'exec 3<>"/dev/tcp/$0/$1"'
        argv = life.inside(self._swarm.place, ["bash", "-c", script, WEST, str(PORT)])
        while subprocess.run(argv, capture_output=True, check=False).returncode:
            said = (self._swarm.place.folder / "api.out").read_text()[-2000:]
            assert time.monotonic() < end and self._process.poll() is None, f"no salt-api: {said}"
            time.sleep(0.2)
        time.sleep(0.5)
        assert self._process.poll() is None, "another one answers"

    def signal(self, name):
        """Send a signal to all of its processes."""
        # All of them are looked up first: who is killed has no children any more.
        for pid in list(_family(self._process.pid)):
            subprocess.run(["kill", "-s", name, str(pid)], check=False)

    def stop(self):
        """End it."""
        self.signal("KILL")
        self._process.wait(10)


def _family(pid):
    yield pid
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text().split():
            yield from _family(int(child))


def begin(argv):
    """Start a command and return the process."""
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
