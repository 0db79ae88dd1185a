"""Evacuation, and what other moves and earlier ones have left of the host's VMs."""

import os
import signal

import playedhosts
import pytest
from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.migration.master import evacuate


def test_a_vm_in_the_middle_of_a_move_is_not_called_stopped(opts, monkeypatch):
    cloud = playedhosts.clouds(monkeypatch)(3)
    for host in cloud.hosts:
        minionkeys.accept(opts, host, "a key")
    master = Cloud(opts=opts, settings=cloud, progress=lambda *_args, **_figures: None)
    # The VM ran. Its host lost power after it had noted the hand-over; the VM is off now.
    cloud.put("web", "h1", state="shutdown")
    departure = {"token": "t1", "phase": "handing", "target": "h2", "autostart": True, "was": True}
    cloud.departures["h1", "web"] = departure
    cloud.arrivals["h2", "web"] = {"token": "t1", "phase": "ready", "source": "h1"}

    with pytest.raises(evacuate.NotAllMoved, match="web"):
        evacuate.evacuate(master, "h1", max_parallel=1, with_stopped=False, wait_s=0)


def test_a_host_with_a_kept_definition_is_no_target_of_a_move(opts, monkeypatch):
    """Web is purged on h1 as its move begins; h3 has only a kept definition of it, off."""
    cloud = playedhosts.clouds(monkeypatch)(3)
    for host in cloud.hosts:
        minionkeys.accept(opts, host, "a key")
    master = Cloud(opts=opts, settings=cloud, progress=lambda *_args, **_figures: None)
    cloud.put("web", "h1", state="running")
    cloud.before["h1", "virt.migrate_begin"] = lambda: cloud.hosts["h1"].pop("web", None)
    presence = cloud._presence

    def kept(host, name):
        result = presence(host, name)
        return {**result, "state": "shutdown", "moved_to": "h1"} if host == "h3" else result

    monkeypatch.setattr(cloud, "_presence", kept)

    result = evacuate.evacuate(master, "h1", max_parallel=1, with_stopped=False, wait_s=0)

    assert result["moved"] == {}


HOW = {"max_parallel": 1, "with_stopped": True, "wait_s": 0}


def test_an_interruption_while_others_are_on_their_way_in_is_no_success(run, monkeypatch):
    three = playedhosts.clouds(monkeypatch)(3)
    three.put("web1", "h3")
    three.building["h3"] = ["web2"]
    three.before["h3", "virt.migrate"] = lambda: os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(
        evacuate.NotAllMoved, match=r"h3 may not be empty \(interrupted\)"
    ) as excinfo:
        run(evacuate.evacuate, three, "h3", **HOW)

    assert playedhosts.table(excinfo)["moved"].keys() == {"web1"}


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_another_evacuation_of_the_host_leaves_the_note_of_a_vm_that_is_moving(
    run, monkeypatch, is_elsewhere
):
    three = playedhosts.clouds(monkeypatch)(3)
    three.put("web1", "h3")
    monkeypatch.setattr(orders, "_END_S", 0)

    def evacuate_again():
        del three.before["h3", "virt.migrate_begin"]
        # The second evacuation would choose another host.
        three.refuses = {"h1": {"web1": ["no"]}} if is_elsewhere else {}
        with pytest.raises(evacuate.NotAllMoved, match="h3 still has web1"):
            run(evacuate.evacuate, three, "h3", **HOW)
        three.refuses = {}

    three.before["h3", "virt.migrate_begin"] = evacuate_again

    result = run(evacuate.evacuate, three, "h3", **HOW)

    assert result["moved"] == {"web1": "h1"} and three.noted("h3") == {"web1": ["h1"]}
