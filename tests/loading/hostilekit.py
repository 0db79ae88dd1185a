"""A real master on loopback, and minions of it that call its methods themselves."""

import json
import socket
import subprocess
import sys
import time

from labkit.settings import CHECKOUT
from loadkit import run

HOSTS, GUEST = ("hyper1", "hyper2"), "evil1"
# Makes key pairs as minions have them, and accepts them: FOLDER of the minions, PKI of the master.
_KEYS = """
import os, pathlib, sys
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
folder, pki, names = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
(pki / "minions").mkdir(parents=True, exist_ok=True)
for name in names:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    own = folder / name / "pki"
    own.mkdir(parents=True)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (own / "minion.pem").write_bytes(private)
    (own / "minion.pem").chmod(0o400)
    (own / "minion.pub").write_bytes(public)
    (pki / "minions" / name).write_bytes(public.strip())
"""
# Calls a method of the master as a minion that it has accepted, or shows a key: FOLDER ID LOAD.
_CALL = """
import ast, sys
import salt.channel.client, salt.config, salt.crypt
folder, name, load = sys.argv[1], sys.argv[2], ast.literal_eval(sys.stdin.read())
opts = salt.config.minion_config(f"{folder}/{name}/minion")
opts.update(master_ip="127.0.0.1", master_uri=f"tcp://127.0.0.1:{opts['master_port']}")
opts["__role"] = "minion"
if load["cmd"] == "_auth":
    with salt.channel.client.ReqChannel.factory(opts, crypt="clear") as channel:
        print(channel.send({"id": name, **load}, timeout=20, tries=1))
else:
    token = salt.crypt.SAuth(opts).gen_token(b"salt")
    with salt.channel.client.ReqChannel.factory(opts) as channel:
        load = {"id": name, "tok": token, **load}
        if load["cmd"] == "_pillar":
            print(channel.crypted_transfer_decode_dictentry(load, dictkey="pillar"))
        else:
            print(channel.send(load, timeout=20, tries=1))
"""
# A question for a certificate, as a hypervisor puts it: prints the request.
_REQUEST = """
import sys
from saltvirt.certificates.host import installed
print(installed.request(sys.argv[1])[1])
"""


def free_ports(count):
    """Return ports of loopback that nothing listens on."""
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports


class Master:
    """A master that runs, with two hosts and one guest whose keys are accepted."""

    def __init__(self, place):
        self.place, self.python = place, place.venv / "bin/python3"
        self.pki, self.log = place.folder / "pki", place.folder / "log"
        publish, ret = free_ports(2)
        config = json.loads((place.etc / "master").read_text())
        config |= {
            "user": "root",
            "interface": "127.0.0.1",
            "publish_port": publish,
            "ret_port": ret,
            "pidfile": str(place.folder / "pid"),
            "worker_threads": 2,
            "minimum_auth_version": 0,
            "virt": {"hypervisors": list(HOSTS)},
            "log_level_logfile": "warning",
        }
        (place.etc / "master").write_text(json.dumps(config))
        assert self.run("saltutil.sync_all").returncode == 0
        for name in (*HOSTS, GUEST):
            folder = place.folder / "minions" / name
            folder.mkdir(parents=True)
            options = {
                **{key: str(folder / key) for key in ("pki_dir", "cachedir", "sock_dir")},
                "id": name,
                "pki_dir": str(folder / "pki"),
                "master": "127.0.0.1",
                "master_port": ret,
                "user": "root",
                "log_file": str(folder / "log"),
            }
            (folder / "minion").write_text(json.dumps(options))
        done = run([self.python, "-c", _KEYS, place.folder / "minions", self.pki, *HOSTS, GUEST])
        assert done.returncode == 0, done.stderr
        self.process = None

    def start(self):
        """Start it, and wait until it answers."""
        argv = [self.place.venv / "bin/salt-master", "-c", self.place.etc]
        if not argv[0].exists():
            argv = [self.python, "-c", "import salt.scripts; salt.scripts.salt_master()", *argv[1:]]
        with (self.place.folder / "printed").open("wb") as printed:
            self.process = subprocess.Popen(
                list(map(str, argv)), stdout=printed, stderr=printed, start_new_session=True
            )
        end = time.monotonic() + 90
        while "base" not in self.call(HOSTS[0], {"cmd": "_file_envs"}, wait_s=20):
            assert time.monotonic() < end, (self.place.folder / "printed").read_text() + self.said

    def stop(self):
        """End it with its processes."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)

    said = ""

    def call(self, minion, load, *, wait_s=60):
        """Call a method of the master as a minion; return what it answers, as text."""
        argv = [self.python, "-c", _CALL, self.place.folder / "minions", minion]
        try:
            done = run(argv, input=repr(load), timeout=wait_s)
        except subprocess.TimeoutExpired:
            return ""
        self.said = done.stdout or done.stderr
        return self.said

    def run(self, *words):
        """Run salt-run."""
        return self.place.runner(*words)

    def ask_pillar(self, minion, pillar, question, grains=None):
        """Ask an external pillar as a minion does."""
        load = {"cmd": "_pillar", "grains": grains or {}, "saltenv": "base", "ver": "2"}
        return self.call(minion, {**load, "ext": {pillar: question}})

    def certify(self, host):
        """Ask for a certificate as a hypervisor; return the answer as text."""
        argv = [sys.executable, "-c", _REQUEST, host]
        made = run(argv, env={"PYTHONPATH": str(CHECKOUT / "_utils")})
        assert made.returncode == 0, made.stderr
        question = {"certificates": {"libvirt-client": made.stdout}, "version": 2}
        grains = {"fqdn": host, "ipv4": [f"10.9.0.{host[-1]}"]}
        return self.ask_pillar(host, "libvirt", question, grains)
