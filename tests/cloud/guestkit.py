"""
A guest whose root tries things: a minion of its own in the guests' network, beside their bridge.

It has no QEMU around it, so that it is there within seconds; what it sends is what a guest would.
"""

import json
import subprocess
from contextlib import contextmanager

from cloudkit import Done, wait
from labkit import node
from labkit.settings import MASTER_IP
from saltvirt.core.crypto import signed

NAME = "evil1"
# The host whose bridge it is on, and what it forges the answers of.
HOST, VICTIM = "hyper1", "hyper2"
ADDRESS = "10.77.200.66"
FOLDER = f"/var/tmp/{NAME}"
UNIT = "lab-guest"
# Whatever of it shows up anywhere was believed.
MARK = "XforgedX"

_BEGIN = f"""set -e
rm -rf {FOLDER}; mkdir -p -m 700 {FOLDER}/etc/salt/pki/minion
cd {FOLDER}/etc/salt/pki/minion
openssl genrsa -out minion.pem 2048 2>/dev/null; chmod 400 minion.pem
openssl rsa -in minion.pem -pubout -out minion.pub 2>/dev/null
systemd-run -q --unit={UNIT} --collect -p Type=exec -p PrivateNetwork=yes sleep infinity
pid=$(systemctl show --value -p MainPID {UNIT})
ip link add evil0 type veth peer name eth0 netns $pid
ip link set evil0 master br0 up
nsenter -t $pid -n ip address add {ADDRESS}/16 dev eth0
nsenter -t $pid -n ip link set eth0 up
echo $pid
"""
# Requests as Salt's own client sends them, but for the id in them, which is not put right.
_FORGER = """
import json, sys
import salt.channel.client, salt.config
class Load(dict):
    def __setitem__(self, key, value):
        if key != "id":
            super().__setitem__(key, value)
opts = salt.config.minion_config(sys.argv[1])
opts["master_uri"] = sys.argv[2]
for how, load in json.loads(sys.argv[3]):
    try:
        with salt.channel.client.ReqChannel.factory(opts, crypt=how) as channel:
            print("SAID", json.dumps(channel.send(Load(load), tries=1, timeout=10), default=repr))
    except Exception as error:
        print("FAILED", type(error).__name__, error)
"""


class Guest:
    """What root of a guest does."""

    def __init__(self, cloud, pid):
        self._cloud, self._pid = cloud, pid

    def command(self, *argv):
        """Run a command in the guest's network to its end."""
        inside = ["nsenter", "-t", self._pid, "-n", "--", "timeout", "120", *argv]
        entered = node.enter(node.pid_of(self._cloud.lab, HOST), inside)
        done = subprocess.run(entered, capture_output=True, text=True, check=False)
        return Done(done.returncode, done.stdout, done.stderr)

    def call(self, *words):
        """Run the guest's own salt-call."""
        return self.command("salt-call", "-c", f"{FOLDER}/etc/salt", *words, "--out=json")

    def local(self, *words):
        """Return the answer of the guest's own salt-call; it must have got one."""
        done = self.call(*words)
        assert done.code == 0, done.out + done.err
        return done.data["local"]

    def raw(self, *loads):
        """Send ``(aes or clear, load)`` to the master's port of requests; return what came back."""
        given = [f"{FOLDER}/etc/salt/minion", f"tcp://{MASTER_IP}:4506", json.dumps(loads)]
        return self.command("/opt/saltstack/salt/bin/python3", "-c", _FORGER, *given).out

    def signs(self, minion, about, **what):
        """Return what another says of a job or an event, signed with the guest's own key."""
        key = self._cloud.folder(HOST) / f"{FOLDER}/etc/salt/pki/minion/minion.pem".lstrip("/")
        return signed.pack(
            signed.SignedAnswer(minion=minion, about=about, **what), key.read_bytes()
        )

    def connects(self, address, port):
        """Return how a connection from the guest to a port ends."""
        code = f"""import socket
try:
    socket.create_connection(("{address}", {port}), timeout=10).close(); print("open")
except TimeoutError: print("silent")
except OSError: print("rejected")"""
        return self.command("python3", "-c", code).out.strip()

    def fires(self, tag, data):
        """Fire an event in each of the ways that a minion has."""
        text = json.dumps(data)
        self.call("event.send", tag, text)
        self.call("event.send", tag, text, f"preload={text}")
        self.call("event.fire_master", text, tag)
        event = {"cmd": "_minion_event", "pretag": None, "events": [{"tag": tag, "data": data}]}
        self.raw(("aes", {**event, "id": NAME}), ("aes", {**event, "id": VICTIM}))


@contextmanager
def guest(cloud):
    """A guest on the bridge of hyper1, whose minion's key the master has accepted."""
    pid = cloud.sh(HOST, _BEGIN).split()[-1]
    try:
        it = Guest(cloud, pid)
        folder = cloud.folder(HOST) / f"{FOLDER}/etc/salt".lstrip("/")
        conf = {"id": NAME, "master": MASTER_IP, "root_dir": FOLDER, "random_reauth_delay": 1}
        (folder / "minion").write_text(json.dumps(conf))
        accepted = cloud.master_conf / "pki/master/minions" / NAME
        accepted.write_text((folder / "pki/minion/minion.pub").read_text())
        cloud.sh("master", f"chown salt: /etc/salt/pki/master/minions/{NAME}")
        wait("the bridge", lambda: it.connects(MASTER_IP, 4506) == "open", timeout_s=60)
        yield it
    finally:
        cloud.sh(HOST, f"systemctl stop {UNIT}; rm -rf {FOLDER}")
        for kept in ("minions", "minions_pre", "minions_denied"):
            (cloud.master_conf / "pki/master" / kept / NAME).unlink(missing_ok=True)


def is_heard(cloud, it):
    """Assert that what the guest fires and sends reaches the master."""
    cloud.heard(f"{NAME}/hello", lambda: it.call("event.send", f"{NAME}/hello", "{}"), limit_s=60)
    listed = {"cmd": "_file_list", "saltenv": "base", "prefix": "", "id": NAME}
    assert "images/tiny.qcow2" in it.raw(("aes", listed))
