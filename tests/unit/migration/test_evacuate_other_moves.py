"""What moves of others, and of before, have left of the VMs of a host that is emptied."""

import os
import signal

import playedhosts
import pytest
from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.migration.master import evacuate


def test_a_vm_in_the_middle_of_a_move_is_not_called_stopped(opts, monkeypatch):
    made = playedhosts.clouds(monkeypatch)(3)
    for host in made.hosts:
        minionkeys.accept(opts, host, "a key")
    master = Cloud(opts=opts, settings=made, progress=lambda *_args, **_figures: None)
    # It ran; its host's power was cut when it had noted that it hands it over. It is off now.
    made.put("web", "h1", state="shutdown")
    left = {"token": "t1", "phase": "handing", "target": "h2", "autostart": True, "was": True}
    made.departures["h1", "web"] = left
    made.arrivals["h2", "web"] = {"token": "t1", "phase": "ready", "source": "h1"}

    with pytest.raises(evacuate.NotAllMoved, match="web"):
        evacuate.evacuate(master, "h1", max_parallel=1, with_stopped=False, wait_s=0)


def test_a_definition_that_was_kept_is_no_host_that_a_vm_has_moved_to(opts, monkeypatch):
    """Web is purged on h1 as it is to move; h3 has only kept its definition, off."""
    made = playedhosts.clouds(monkeypatch)(3)
    for host in made.hosts:
        minionkeys.accept(opts, host, "a key")
    master = Cloud(opts=opts, settings=made, progress=lambda *_args, **_figures: None)
    made.put("web", "h1", state="running")
    made.before["h1", "virt.migrate_begin"] = lambda: made.hosts["h1"].pop("web", None)
    presence = made._presence

    def kept(host, name):
        said = presence(host, name)
        return {**said, "state": "shutdown", "moved_to": "h1"} if host == "h3" else said

    monkeypatch.setattr(made, "_presence", kept)

    said = evacuate.evacuate(master, "h1", max_parallel=1, with_stopped=False, wait_s=0)

    assert said["moved"] == {}


HOW = {"max_parallel": 1, "with_stopped": True, "wait_s": 0}


def test_an_interruption_while_others_are_on_their_way_in_is_no_success(run, monkeypatch):
    three = playedhosts.clouds(monkeypatch)(3)
    three.put("web1", "h3")
    three.building["h3"] = ["web2"]
    three.before["h3", "virt.migrate"] = lambda: os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(
        evacuate.NotAllMoved, match=r"h3 may not be empty \(interrupted\)"
    ) as caught:
        run(evacuate.evacuate, three, "h3", **HOW)

    assert playedhosts.table(caught)["moved"].keys() == {"web1"}


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_another_evacuation_of_the_host_leaves_the_note_of_a_vm_that_is_moving(
    run, monkeypatch, is_elsewhere
):
    three = playedhosts.clouds(monkeypatch)(3)
    three.put("web1", "h3")
    monkeypatch.setattr(orders, "_END_S", 0)

    def again():
        del three.before["h3", "virt.migrate_begin"]
        # The second one would have it go to another host.
        three.refuses = {"h1": {"web1": ["no"]}} if is_elsewhere else {}
        with pytest.raises(evacuate.NotAllMoved, match="h3 still has web1"):
            run(evacuate.evacuate, three, "h3", **HOW)
        three.refuses = {}

    three.before["h3", "virt.migrate_begin"] = again

    done = run(evacuate.evacuate, three, "h3", **HOW)

    assert done["moved"] == {"web1": "h1"} and three.noted("h3") == {"web1": ["h1"]}
