"""What its source has no more is never refused by its target."""

import pytest
from saltvirt.cluster.cloud import Cloud
from saltvirt.core.protocol.effects import Source
from saltvirt.migration.master import moveexecutor


@pytest.mark.parametrize(
    ("source", "is_handed"),
    [
        (Source(phase="handing", has=True), False),
        (Source(phase="handing", has=True, is_handed=True), True),
        # One that is transient.
        (Source(phase="handing", has=False), True),
    ],
)
def test_what_its_source_has_no_more_is_not_given_back(monkeypatch, source, is_handed):
    asked = []

    def act(_cloud, host, fun, *args, **options):
        asked.append((host, fun, args[-1], options["kwarg"]["is_handed"]))
        return {"warnings": []}

    monkeypatch.setattr(moveexecutor, "act", act)
    cloud = Cloud(opts={}, settings=None, progress=lambda *_a, **_k: None)
    hosts = moveexecutor.MoveHosts(source="hyper1", target="hyper2")
    hands = moveexecutor.MoveExecutor(cloud, type("Held", (), {"name": "web1"})(), "t1", hosts)
    hands.answers["hyper1"] = source

    hands.arrive()

    assert asked == [("hyper2", "virt.migrate_step", "arrive", is_handed)]
