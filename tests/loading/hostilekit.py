"""A real master on loopback, and minions of it that call its methods themselves."""

import json
import subprocess
import sys
from pathlib import Path

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


class Master:
    """A master that runs, with two hosts and one guest whose keys are accepted."""

    def __init__(self, place, factories):
        self.place, self.python = place, place.venv / "bin/python3"
        self.pki, self.log = place.folder / "pki", place.folder / "log"
        overrides = json.loads((place.etc / "master").read_text())
        overrides |= {
            "worker_threads": 2,
            "minimum_auth_version": 0,
            "virt": {"hypervisors": list(HOSTS)},
            "log_level_logfile": "warning",
        }
        self.daemon = factories.salt_master_daemon(overrides.pop("id"), overrides=overrides)
        place.etc = Path(self.daemon.config_dir)
        assert self.run("saltutil.sync_all").returncode == 0
        for name in (*HOSTS, GUEST):
            folder = place.folder / "minions" / name
            folder.mkdir(parents=True)
            options = {
                **{key: str(folder / key) for key in ("pki_dir", "cachedir", "sock_dir")},
                "id": name,
                "pki_dir": str(folder / "pki"),
                "master": "127.0.0.1",
                "master_port": self.daemon.config["ret_port"],
                "user": "root",
                "log_file": str(folder / "log"),
            }
            (folder / "minion").write_text(json.dumps(options))
        done = run([self.python, "-c", _KEYS, place.folder / "minions", self.pki, *HOSTS, GUEST])
        assert done.returncode == 0, done.stderr

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
