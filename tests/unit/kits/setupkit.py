"""A master and two hosts with all that VMs need, and a check of them."""

import dataclasses
import json
import time
from pathlib import Path

import keypairs
import saltvirt
from saltvirt.checks.master.asking import ProblemsFound
from saltvirt.checks.setup.master import run, unloaded
from saltvirt.checks.setup.setupanswer import FolderFacts, MovingFacts, SetupFacts
from saltvirt.cluster import minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc import minions
from saltvirt.cluster.rpc.waits import Wait
from saltvirt.core import filecontent, wire
from saltvirt.placement.answers import DomainTypes, HostInfo

ROOT = Path(__file__).resolve().parents[3]
HOSTS = ("hyper1", "hyper2")
SERVED = (
    *("_modules/virt_query.py", "hypervisor/init.sls", "debian-12.qcow2"),
    "salt-virt/minion/index.json",
)


def info(**more):
    """Return the answer of a complete host to ``virt.host_info``."""
    answer = json.loads((ROOT / "tests/data/fleets/three.json").read_text())["hyper2"]
    types = DomainTypes(default="kvm", usable=["kvm", "qemu"], why="a KVM test guest ran")
    host_info = wire.read("hyper2", "virt.host_info", HostInfo, answer)
    return dataclasses.replace(host_info, **{"domain_types": types, **more})


def host_facts(other_host):
    """Return the facts of a complete host."""
    return SetupFacts(
        code=filecontent.of_code(),
        clock_s=time.time(),
        hash_type="sha256",
        virtualization="vmx",
        has_kvm=True,
        libvirt=None,
        info=info(),
        why_not=None,
        folder=FolderFacts(path="/srv/salt-images", why_not=None, user="libvirt-qemu", closed=None),
        lacking=[],
        storagepool="",
        pool=None,
        appliance=None,
        users=None,
        masters={"salt": None},
        no_master=None,
        moving=MovingFacts(certificates=[], listens=True, peers={other_host: None}),
    )


class Setup:
    """A master with a complete file server, and the facts that two hosts report."""

    def __init__(self, opts, folder, monkeypatch):
        self.opts, self.folder, self.monkeypatch = opts, folder, monkeypatch
        opts.update(
            virt={"hypervisors": list(HOSTS)},
            file_roots={"base": [str(folder / "srv")]},
            # The library as a sync would bring it, and a pillar beside it.
            extension_modules=str(Path(saltvirt.__file__).resolve().parent),
            pillar_dirs=[str(ROOT / "_pillar")],
            pidfile=str(folder / "master.pid"),
            conf_file=str(folder / "etc/master"),
        )
        (folder / "etc").mkdir()
        (folder / "etc/master").write_text("# nothing\n")
        for name in SERVED:
            path = folder / "srv" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
        for host in HOSTS:
            minionkeys.accept(opts, host, keypairs.named("a host")[0])
        self.facts = dict(zip(HOSTS, map(host_facts, reversed(HOSTS)), strict=True))
        self.replies, self.unsigned, self.asked, self.others = {}, {}, [], {}

    def say(self, **more):
        """Change the facts that hyper1 reports."""
        self.facts["hyper1"] = dataclasses.replace(self.facts["hyper1"], **more)

    def tell(self, **more):
        """Change hyper1's answer to ``virt.host_info``."""
        self.say(info=info(**more))

    def wait(self, host):
        """Add a waiting key of a minion."""
        (Path(self.opts["pki_dir"]) / "minions_pre" / host).write_text("a key")

    def _ask(self, _cloud, targets, fun, kwarg, timeout_s, wait):
        """Stand for ``minions.ask``."""
        assert fun == run.FUN and set(kwarg["peers"]) == set(targets) and timeout_s > 0
        assert wait == Wait.brief(targets)
        self.asked += targets
        self.others = kwarg.get("others", {})
        replies = {h: minions.Reply(minion=h, value=wire.plain(self.facts[h])) for h in targets}
        return {**replies, **{h: reply for h, reply in self.replies.items() if h in targets}}

    def _answers(self, _cloud, targets, fun, _timeout_s):
        """Stand for ``unsigned_answers``, which waits for all hosts that it asks."""
        assert fun == run.FUN
        assert [host for host in targets if self.replies[host].error is None] == []
        return {host: self.unsigned[host] for host in targets if host in self.unsigned}

    def data(self, *named):
        """Return the check's answer or the table of its error, and whether it found no gap."""
        self.monkeypatch.setattr(minions, "ask", self._ask)
        self.monkeypatch.setattr(unloaded, "unsigned_answers", self._answers)
        try:
            return run.check(Cloud.of(self.opts), named), True
        except ProblemsFound as incomplete:
            return incomplete.table, False

    def check(self, *named):
        """Return ``[(check, where, level)]``."""
        findings = self.data(*named)[0]["findings"]
        assert all(
            finding["what"] and finding["fix"] and "\n" not in finding["fix"]
            for finding in findings
        )
        return [(finding["check"], finding["where"], finding["level"]) for finding in findings]
