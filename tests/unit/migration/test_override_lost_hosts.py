"""A host is given up as lost only if it is silent: one that answers an error may run the VM."""

from dataclasses import asdict
from types import SimpleNamespace

import pytest
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.rpc import minions
from saltvirt.core.protocol.effects import Source, Target, ThirdHosts
from saltvirt.migration.master import moveexecutor, recovery

HOSTS = moveexecutor.MoveHosts(source="hyper1", target="hyper2")
HANDED = {"source": asdict(Source(phase="handing", has=True)), "target": asdict(Target())}


@pytest.mark.parametrize(
    ("reply_fields", "is_lost"),
    [({"error": "libvirtd is down"}, False), ({"is_missing": True}, True)],
)
def test_only_a_silent_host_is_lost(monkeypatch, reply_fields, is_lost):
    calls = []

    def ask(_cloud, hosts, *_args, **_options):
        (host,) = hosts
        value = {"value": {**HANDED, "noted": {}}} if host == "hyper1" else reply_fields
        return {host: minions.Reply(minion=host, **value)}

    monkeypatch.setattr(minions, "ask", ask)
    monkeypatch.setattr(moveexecutor, "act", lambda *args, **_options: calls.append(args[1:]) or {})
    monkeypatch.setattr(moveexecutor, "_PATIENCE_S", 0)
    monkeypatch.setattr(moveexecutor.thirdhosts, "look", lambda *_args: ThirdHosts())
    record = SimpleNamespace(name="web1", record=None)
    cloud = Cloud(opts={}, settings=SimpleNamespace(timeout_s=1), progress=lambda *_a, **_k: None)
    call = (cloud, record, "t1", HOSTS)

    if is_lost:
        assert recovery.settle(*call, keep="hyper1") == "stays on hyper1; hyper2 is lost"
    else:
        with pytest.raises(moveexecutor.MoveFailed, match="hyper2 answers, so it is not lost"):
            recovery.settle(*call, keep="hyper1")
    assert bool(calls) is is_lost
