"""A VM that has moved on to a third host, and a source that then comes back."""

import playedhosts
import pytest
from saltvirt.cluster import minionkeys
from saltvirt.cluster.cloud import Cloud
from saltvirt.migration.master import migrate, recovery, settle


@pytest.fixture
def three(opts, monkeypatch):
    """Three hosts; web moved from h1 to h2, which was kept, and from there to h3."""
    cloud = playedhosts.clouds(monkeypatch)(4)
    cloud.put("web", "h1", autostart=True, state="running")
    for host in cloud.hosts:
        minionkeys.accept(opts, host, "a key")
    cloud.silent.add(("h1", "virt.migrate", "the answer"))
    cloud.after["h1", "virt.migrate"] = lambda: cloud.silent.add("h1")
    master = Cloud(opts=opts, settings=cloud, progress=lambda *_args, **_figures: None)
    with pytest.raises(recovery.Unsettled):
        migrate.migrate(master, "web", "h2", {})
    settle.settle_all(master, "web", keep="h2")
    migrate.migrate(master, "web", "h3", {}, "h2")
    cloud.silent.clear()
    cloud.master = master
    return cloud


@pytest.fixture(params=[False, True], ids=["started anew", "libvirt remembers"])
def is_handed(request, monkeypatch):
    """Whether libvirt on h1 reports that it has handed the VM over."""
    monkeypatch.setattr(playedhosts._Source, "is_handed", lambda _self: request.param)


@pytest.mark.usefixtures("is_handed")
def test_a_vm_that_has_gone_on_is_not_taken_back(three):
    with pytest.raises(
        recovery.Unsettled,
        match=r"'web' is on h3, and the move from h1 to h2.* is not over on record: if h3's is "
        r"the VM, run salt-run virt.settle web keep=h3",
    ):
        settle.settle_all(three.master)
    for force in (False, True):
        with pytest.raises(recovery.Unsettled, match="keep=h3"):
            settle.settle_all(three.master, "web", force=force)

    assert three.where("web") == ["h3"] and three.departures and three.away

    assert settle.settle_all(three.master, "web", keep="h3")["settled"] == {
        "web": "is on h3; h1: its files are left there: /a"
    }
    assert three.where("web") == ["h3"] and not (three.departures or three.arrivals)
    assert three.kept == {("h1", "web"): "h3"} and not three.away["h1", "web"]["autostart"]


@pytest.mark.usefixtures("is_handed")
def test_a_silent_host_that_may_have_it_is_waited_for_unless_forced(three):
    del three.hosts["h3"]["web"]
    three.silent.add("h3")

    with pytest.raises(
        recovery.Unsettled, match=r"h3 \(.*\) may have it, and cannot be asked.*with force=True"
    ):
        settle.settle_all(three.master, "web")
    assert three.where("web") == [] and three.departures

    settle.settle_all(three.master, "web", force=True)
    assert not three.departures and three.where("web")


def test_a_host_that_does_not_have_it_cannot_be_kept(three):
    with pytest.raises(recovery.Unsettled):
        settle.settle_all(three.master, "web")
    with pytest.raises(recovery.Unsettled, match="'h4'; one of h1, h2"):
        settle.settle_all(three.master, "web", keep="h4")


def test_a_move_to_a_third_host_under_another_name_counts(three, monkeypatch):
    three.hosts["h3"] = {}
    real_state = three._migration_state

    def state_by_uuid(host, name=None, token=None, uuid=None):
        answer = real_state(host, name, token, uuid)
        if host == "h3" and uuid == "uuid of web":
            answer["target"]["is_arriving"] = True
        return answer

    monkeypatch.setattr(three, "_migration_state", state_by_uuid)
    real_on_record = three._on_record
    monkeypatch.setattr(three, "_on_record", lambda host: _with_uuid(real_on_record(host)))

    with pytest.raises(recovery.Unsettled, match="another move of it, by h3, is not over either"):
        settle.settle_all(three.master)


def _with_uuid(moves_by_name):
    return {
        name: [{**move, "uuid": f"uuid of {name}"} for move in moves]
        for name, moves in moves_by_name.items()
    }
