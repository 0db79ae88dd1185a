"""A master set up as in docs/security.md, and two hosts that report no faults."""

import dataclasses
import shutil

import askedca
import keypairs
from cryptography import x509
from saltvirt.ca import ca, policy
from saltvirt.ca.authorities import Authorities
from saltvirt.certificates.host import installed
from saltvirt.checks.audit.auditanswer import (
    CertificateFacts,
    ConsoleFacts,
    DaemonFacts,
    DisplayFacts,
    HostAudit,
    KeyFacts,
    LocalFacts,
    RevocationFacts,
)
from saltvirt.checks.audit.master import run
from saltvirt.checks.master.asking import ProblemsFound
from saltvirt.cluster import membership, minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc import minions
from saltvirt.cluster.rpc.waits import Wait
from saltvirt.core import filecontent, wire

NOW = askedca.NOW
HOSTS = ("hyper1", "hyper2")


class World:
    """A master set up as in docs/security.md, and the facts that its two hosts report."""

    def __init__(self, opts, folder, monkeypatch, signed):
        self.opts, self.folder, self.monkeypatch = opts, folder, monkeypatch
        opts.update(
            minimum_auth_version=3,
            zmq_filtering=True,
            virt={"hypervisors": list(HOSTS)},
            file_roots={"base": [str(folder / "srv")]},
            pillar_roots={"base": [str(folder / "pillar")]},
        )
        for name in ("srv", "pillar"):
            (folder / name).mkdir()
        self.place = Authorities(membership.folder(opts))
        shutil.copytree(signed.folder, self.place.folder)
        for host in HOSTS:
            minionkeys.accept(opts, host, keypairs.named("a host")[0])
        self.facts = dict(signed.facts)
        self.replies = {}

    def say(self, **more):
        """Change the facts that hyper1 reports."""
        self.facts["hyper1"] = dataclasses.replace(self.facts["hyper1"], **more)

    def heed(self):
        """Give both hosts the master's current lists of revoked certificates."""
        answer = askedca.ask(self.place, "hyper1", {}, grains={})
        for host, facts in self.facts.items():
            self.facts[host] = dataclasses.replace(facts, revoked=lists(answer))

    def ask(self, _cloud, targets, fun, wait):
        """Stand for ``minions.ask``."""
        assert fun == "virt.audit" and wait == Wait.brief(targets)
        replies = {h: minions.Reply(minion=h, value=wire.plain(self.facts[h])) for h in targets}
        return {**replies, **self.replies}

    def audit(self, now=NOW):
        """Return ``[(check, where, what, fix)]``."""
        self.monkeypatch.setattr(minions, "ask", self.ask)
        cloud = Cloud.of(self.opts)
        try:
            findings = run.audit(cloud, now)["findings"]
        except ProblemsFound as short:
            findings = short.table["findings"]
            assert findings
        return [
            tuple(finding[key] for key in ("check", "where", "what", "fix")) for finding in findings
        ]


def display(address, **more):
    """Return a VNC display."""
    return DisplayFacts(
        **{"vm": "web1", "type": "vnc", "has_password": False, **more}, address=address
    )


def console(address, tls=None):
    """Return a console of a VM."""
    return ConsoleFacts(vm="web1", address=address, tls=tls)


def lists(answer):
    """Return a host's facts about the lists of revoked certificates in an answer."""
    out = {}
    for use, trust in answer.trust.items():
        parts = installed.revocation_lists(trust.crl)
        serials = sorted({f"{row.serial_number:032x}" for crl in parts for row in crl})
        ends = min(part.next_update_utc for part in parts).isoformat()
        out[use] = RevocationFacts(path=f"/etc/pki/{use}.crl", ends=ends, serials=serials)
    return out


def certificate(pem, **more):
    """Return a host's facts about a certificate."""
    x509_certificate = x509.load_pem_x509_certificate(pem.encode())
    facts = CertificateFacts(
        path="/etc/pki/x.pem",
        serial=f"{x509_certificate.serial_number:032x}",
        not_before=x509_certificate.not_valid_before_utc.isoformat(),
        not_after=x509_certificate.not_valid_after_utc.isoformat(),
    )
    return dataclasses.replace(facts, **more)


def key(mode, **more):
    """Return a host's facts about a key."""
    key_facts = {"most": 0o600, "owner": "root", "group": "root", "reader": None}
    return KeyFacts(path="/etc/pki/key.pem", mode=mode, **{**key_facts, **more})


def host_facts(place, host):
    """Return the facts of a sound host with certificates of these CAs."""
    requests = {purpose: askedca.request() for purpose in policy.PURPOSES}
    answer = askedca.ask(place, host, requests, grains={})
    return HostAudit(
        code=filecontent.of_code(),
        vms=["web1"],
        daemons=[
            DaemonFacts(
                path="/etc/libvirt/libvirtd.conf",
                names=["OU=salt-virt hypervisor,*"],
                verifies=True,
            )
        ],
        local=LocalFacts(sockets=[], users=[], rules=[]),
        plain=[],
        unguarded=[],
        trusted={use: ca.fingerprints(trust.ca.encode()) for use, trust in answer.trust.items()},
        revoked=lists(answer),
        qemu={"migrate_tls_force": "1", "migrate_tls_x509_verify": "1"},
        displays=[display("127.0.0.1"), display(""), display("0.0.0.0", has_password=True)],
        consoles=[console("127.0.0.1"), console("0.0.0.0", tls="yes")],
        certificates=[certificate(pem) for pem in answer.certificates.values()],
        keys=[key(0o600), key(0o640, most=0o640, group="kvm", reader="kvm")],
    )
