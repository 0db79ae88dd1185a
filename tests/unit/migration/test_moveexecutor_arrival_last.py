"""A target never refuses a VM that its source no longer has."""

import pytest
from saltvirt.cluster.cloud import Cloud
from saltvirt.core.protocol.effects import Source
from saltvirt.migration.master import moveexecutor


@pytest.mark.parametrize(
    ("source", "is_handed"),
    [
        (Source(phase="handing", has=True), False),
        (Source(phase="handing", has=True, is_handed=True), True),
        # A transient VM.
        (Source(phase="handing", has=False), True),
    ],
)
def test_a_vm_that_its_source_no_longer_has_is_not_given_back(monkeypatch, source, is_handed):
    calls = []

    def act(_cloud, host, fun, *args, **options):
        calls.append((host, fun, args[-1], options["kwarg"]["is_handed"]))
        return {"warnings": []}

    monkeypatch.setattr(moveexecutor, "act", act)
    cloud = Cloud(opts={}, settings=None, progress=lambda *_a, **_k: None)
    hosts = moveexecutor.MoveHosts(source="hyper1", target="hyper2")
    executor = moveexecutor.MoveExecutor(cloud, type("Held", (), {"name": "web1"})(), "t1", hosts)
    executor.answers["hyper1"] = source

    executor.arrive()

    assert calls == [("hyper2", "virt.migrate_step", "arrive", is_handed)]
