"""A host is evacuated, and VMs of an affinity group stay together."""

import pytest
from playedhosts import HOW, clouds, table
from saltvirt.migration.master import evacuate


@pytest.fixture
def cloud(monkeypatch):
    """A function that makes a cloud of so many hosts, without sleep and with short waits."""
    monkeypatch.setattr(evacuate.time, "sleep", lambda _s: None)
    return clouds(monkeypatch)


def test_a_vm_that_must_be_with_a_staying_stopped_vm_stays_too(cloud, run):
    three = cloud(3)
    three.put("web1", "h3", affinity=["shop"])
    three.put("web2", "h3", affinity=["shop"], state="shutdown")
    three.put("other", "h3")

    with pytest.raises(evacuate.NotAllMoved) as excinfo:
        run(evacuate.evacuate, three, "h3", **{**HOW, "with_stopped": False})

    assert three.where("web1") == three.where("web2") == ["h3"] != three.where("other")
    shared_reason = "web2, which stays with it: it is stopped"
    assert table(excinfo)["stays"] == {"web1": shared_reason, "web2": "it is stopped"}
    plan = run(evacuate.dry_run, three, "h3", with_stopped=False)
    assert plan["stays"] == {"web1": shared_reason, "web2": "it is stopped"} and plan["moves"] == {}


def test_a_vm_that_arrives_later_stays_with_its_group_that_could_not_move(cloud, run):
    three = cloud(3)
    three.put("web1", "h3", affinity=["shop"], obstacles=["it has a device of the host"])
    three.put("other", "h3")
    three.before["h3", "virt.migrate"] = lambda: three.put("web2", "h3", affinity=["shop"])

    with pytest.raises(evacuate.NotAllMoved) as excinfo:
        run(evacuate.evacuate, three, "h3", **HOW)

    assert three.where("web1") == three.where("web2") == ["h3"] != three.where("other")
    reason = "web1, which stays with it: it has a device of the host"
    assert table(excinfo)["stays"]["web2"] == reason
