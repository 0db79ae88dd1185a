"""A host is emptied, and VMs that must be together stay so."""

import pytest
from playedhosts import HOW, clouds, table
from saltvirt.migration.master import evacuate


@pytest.fixture
def cloud(monkeypatch):
    """A function that makes a cloud of so many hosts; nobody sleeps, and little is waited."""
    monkeypatch.setattr(evacuate.time, "sleep", lambda _s: None)
    return clouds(monkeypatch)


def test_who_must_be_with_a_stopped_vm_that_may_stay_stays_with_it(cloud, run):
    three = cloud(3)
    three.put("web1", "h3", affinity=["shop"])
    three.put("web2", "h3", affinity=["shop"], state="shutdown")
    three.put("other", "h3")

    with pytest.raises(evacuate.NotAllMoved) as caught:
        run(evacuate.evacuate, three, "h3", **{**HOW, "with_stopped": False})

    assert three.where("web1") == three.where("web2") == ["h3"] != three.where("other")
    with_it = "web2, which stays with it: it is stopped"
    assert table(caught)["stays"] == {"web1": with_it, "web2": "it is stopped"}
    plan = run(evacuate.dry_run, three, "h3", with_stopped=False)
    assert plan["stays"] == {"web1": with_it, "web2": "it is stopped"} and plan["moves"] == {}


def test_who_comes_later_stays_with_those_of_its_group_that_could_not_move(cloud, run):
    three = cloud(3)
    three.put("web1", "h3", affinity=["shop"], obstacles=["it has a device of the host"])
    three.put("other", "h3")
    three.before["h3", "virt.migrate"] = lambda: three.put("web2", "h3", affinity=["shop"])

    with pytest.raises(evacuate.NotAllMoved) as caught:
        run(evacuate.evacuate, three, "h3", **HOW)

    assert three.where("web1") == three.where("web2") == ["h3"] != three.where("other")
    why = "web1, which stays with it: it has a device of the host"
    assert table(caught)["stays"]["web2"] == why
