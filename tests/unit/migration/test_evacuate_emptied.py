"""A host is emptied; hosts that fall silent, and VMs that change meanwhile, are played."""

import os
import signal
import threading

import pytest
from playedhosts import HOW, SILENT, clouds, table
from saltvirt.cluster.cloud import Cloud as Master
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.whereabouts import Purpose
from saltvirt.core.errors import BadArgument, VirtError
from saltvirt.migration.master import evacuate, migrate, parallelmoves
from saltvirt.vm.create.master import hostbuild


@pytest.fixture
def cloud(monkeypatch):
    """A function that makes a cloud of so many hosts; nobody sleeps, and little is waited."""
    monkeypatch.setattr(evacuate.time, "sleep", lambda _s: None)
    return clouds(monkeypatch)


def test_a_vm_that_has_moved_but_does_not_start_with_its_host_has_moved(cloud, run):
    three = cloud(3)
    three.put("web1", "h3", autostart=True)
    three.no_autostart |= {"h1", "h2"}

    done = run(evacuate.evacuate, three, "h3", **HOW)

    (there,) = three.where("web1")
    assert done["moved"] == {"web1": there} and done["failed"] == {}
    assert three.noted("h3") == {"web1": [there]}
    assert done["warnings"]["web1"] == "it does not start with its new host: no"


def test_a_vm_whose_move_was_not_heard_of_is_looked_for_before_it_is_moved_again(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.silent.add(("h3", "virt.migrate", "the answer"))

    done = run(evacuate.evacuate, three, "h3", **HOW)

    (there,) = three.where("web1")
    assert done["moved"] == {"web1": there} and done["failed"] == {}
    assert three.noted("h3") == {"web1": [there]}
    assert done["warnings"]["web1"] == f"it has moved, but: {SILENT.format('h3')}"
    assert three.asked.count(("h3", "virt.migrate")) == 1


def test_nobody_guesses_where_a_vm_is_while_its_host_is_silent(cloud, opts):
    three = cloud(3)
    three.put("web1", "h1")
    three.silent.add("h3")
    master = Master(opts=opts, settings=three, progress=lambda *_args, **_figures: None)
    there = locate(master, "web1", Purpose.REPORT)

    assert parallelmoves._find_arrival(there, "h3") is None
    assert parallelmoves._find_arrival(there, "h2") == "h1"
    assert parallelmoves._find_arrival(there, "h1") is None


def test_nothing_moves_that_cannot_be_noted(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.silent.add(("h3", "virt.evacuated"))

    with pytest.raises(hostbuild.HostUnresponsive, match="h3 does not answer"):
        run(evacuate.evacuate, three, "h3", **HOW)

    assert three.where("web1") == ["h3"]


def test_where_a_vm_goes_is_noted_before_it_goes(cloud, run):
    three, seen = cloud(3), []
    three.put("web1", "h3")
    three.before["h3", "virt.migrate"] = lambda: seen.append(three.noted("h3"))

    done = run(evacuate.evacuate, three, "h3", **HOW)

    assert seen == [{"web1": [done["moved"]["web1"]]}]


def test_what_was_noted_of_a_vm_that_did_not_move_is_taken_back(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")

    def fails():
        raise hostbuild.HostCommandFailed("h3: disk full")

    three.before["h3", "virt.migrate"] = fails
    with pytest.raises(
        evacuate.NotAllMoved, match="h3 still has web1; .*salt-run virt.evacuate h3"
    ):
        run(evacuate.evacuate, three, "h3", **HOW)

    assert three.where("web1") == ["h3"] and three.noted("h3") == {}


def test_what_was_noted_of_a_vm_whose_move_may_go_on_stays(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.silent |= {("h3", "virt.migrate"), ("h3", "virt.migrate_step cancel")}

    with pytest.raises(evacuate.NotAllMoved, match="h3 still has web1"):
        run(evacuate.evacuate, three, "h3", **HOW)

    assert three.where("web1") == ["h3"] and not three.is_settled()
    assert list(three.noted("h3")) == ["web1"], "whoever settles the move may end it"


def test_a_vm_that_went_to_the_next_best_host_is_noted_there(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    planned = run(evacuate.dry_run, three, "h3", True)["moves"]["web1"]
    (other,) = {"h1", "h2"} - {planned}
    three.before["h3", "virt.evacuated"] = lambda: three.refuses.update({planned: {"web1": ["x"]}})

    done = run(evacuate.evacuate, three, "h3", **HOW)

    assert done["moved"] == {"web1": other} and three.noted("h3") == {"web1": [other]}


def test_what_is_on_its_way_in_is_named_waited_for_and_moved_as_well(cloud, run, said):
    three, looks = cloud(3), []
    three.put("web1", "h3")
    three.building["h3"] = ["web2"]

    def look():
        looks.append(1)
        if len(looks) == 2:
            three.put("web2", "h3")  # defined, and not complete yet
        if len(looks) == 4:
            three.building.clear()

    three.before["h3", "virt.host_info"] = look

    done = run(evacuate.evacuate, three, "h3", **HOW)

    assert sorted(done["moved"]) == ["web1", "web2"] and done["stays"] == {}
    assert three.hosts["h3"] == {}
    assert any(line == "Waiting at most 6 s for web2 on the way in" for line in said)


def test_what_does_not_arrive_in_time_is_named_and_the_host_is_not_empty(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.put("web2", "h3")
    three.building["h3"] = ["web2", "web3"]

    with pytest.raises(evacuate.NotAllMoved, match="h3 still has web2, web3") as caught:
        run(evacuate.evacuate, three, "h3", **HOW)

    assert list(table(caught)["moved"]) == ["web1"], "the others go all the same"
    assert table(caught)["stays"]["web3"].startswith("still on its way in after 6 s; when the virt")
    # A purge would remove the VM on the host that still has it.
    assert "salt-run virt.settle web3" in table(caught)["stays"]["web3"]
    assert "purge" not in table(caught)["stays"]["web3"]
    assert three.where("web2") == ["h3"], "what is being built is left alone"


def test_a_plan_names_what_is_on_its_way_in(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.put("web2", "h3")
    three.building["h3"] = ["web2"]

    plan = run(evacuate.dry_run, three, "h3", True)

    assert list(plan["moves"]) == ["web1"] and plan["stays"] == {}
    assert plan["warnings"] == {"web2": "on its way in: it is waited for, and then moved too"}


def test_what_was_interrupted_there_is_named_with_the_command_that_ends_it(cloud, run):
    three, why = cloud(3), "the record /a/build/db.json cannot be read (x); move it away"
    three.put("web1", "h3")
    three.unfinished["h3"] = ["web2"]
    three.unreadable["h3"] = {"db": why}

    plan = run(evacuate.dry_run, three, "h3", True)
    done = run(evacuate.evacuate, three, "h3", **HOW)

    # What cannot be read, a purge refuses too.
    assert plan["warnings"] == done["warnings"]
    assert done["warnings"]["db"] == why
    assert "salt h3 virt.purge web2 removes it" in done["warnings"]["web2"]


def test_a_host_with_a_vm_that_libvirt_does_not_know_of_is_not_empty(cloud, run):
    three, why = cloud(3), "libvirt has not loaded /etc/libvirt/qemu/db.xml"
    three.put("web1", "h3")
    three.not_loaded["h3"] = {"db": why}

    plan = run(evacuate.dry_run, three, "h3", True)
    with pytest.raises(evacuate.NotAllMoved, match="h3 still has db; ") as caught:
        run(evacuate.evacuate, three, "h3", **HOW)

    assert list(table(caught)["moved"]) == ["web1"]
    assert plan["stays"] == table(caught)["stays"] == {"db": why}


def test_a_purge_in_between_is_no_failure(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.put("web2", "h3")
    three.before["h3", "virt.evacuated"] = lambda: three.hosts["h3"].pop("web2", None)

    done = run(evacuate.evacuate, three, "h3", **HOW)

    assert list(done["moved"]) == ["web1"] and done["failed"] == {}
    assert done["gone"] == ["web2"] and list(three.notes["h3"]) == ["web1"]


def test_what_cannot_be_read_takes_back_no_note_of_a_vm(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")

    def fail():
        three.hosts["h3"]["web1"]["vcpus"] = "two"
        raise VirtError("no")

    three.before["h3", "virt.migrate_begin"] = fail

    with pytest.raises(evacuate.NotAllMoved, match="h3 answers virt.migration_info with something"):
        run(evacuate.evacuate, three, "h3", **HOW)

    assert list(three.notes["h3"]) == ["web1"]


def test_a_vm_that_could_not_move_and_was_purged_meanwhile_is_no_failure(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.put("web2", "h3", obstacles=["it has snapshots"])
    three.before["h3", "virt.migrate"] = lambda: three.hosts["h3"].pop("web2", None)

    done = run(evacuate.evacuate, three, "h3", **HOW)

    assert list(done["moved"]) == ["web1"] and done["stays"] == done["failed"] == {}


def test_a_stop_in_between_is_no_failure(cloud, run):
    three, tries = cloud(3), []
    three.put("web1", "h3")

    def stopped():
        tries.append(1)
        if len(tries) == 1:
            three.hosts["h3"]["web1"]["state"] = "shutdown"
            raise hostbuild.HostCommandFailed("h3: domain is not running")

    three.before["h3", "virt.migrate"] = stopped

    done = run(evacuate.evacuate, three, "h3", **HOW)

    assert list(done["moved"]) == ["web1"] and done["failed"] == {}


def test_a_vm_that_is_started_while_stopped_ones_may_stay_is_moved(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.put("web2", "h3", state="shutdown")
    start = {"state": "running"}
    three.before["h3", "virt.migrate"] = lambda: three.hosts["h3"].get("web2", {}).update(start)

    done = run(evacuate.evacuate, three, "h3", **{**HOW, "with_stopped": False})

    assert sorted(done["moved"]) == ["web1", "web2"] and done["stays"] == {}


def test_a_stopped_vm_may_stay(cloud, run):
    three = cloud(3)
    three.put("web1", "h3", state="shutdown")

    done = run(evacuate.evacuate, three, "h3", **{**HOW, "with_stopped": False})

    assert done["stays"] == {"web1": "it is stopped"} and done["moved"] == {}


def test_a_fault_nobody_thought_of_does_not_stop_the_others(cloud, run, monkeypatch):
    three, move = cloud(3), migrate.migrate
    for name in ("web1", "web2", "web3"):
        three.put(name, "h3")

    def broken(master, name, *args):
        if name == "web1":
            raise KeyError("disks")
        return move(master, name, *args)

    monkeypatch.setattr(migrate, "migrate", broken)
    with pytest.raises(evacuate.NotAllMoved) as caught:
        run(evacuate.evacuate, three, "h3", **HOW)

    assert sorted(table(caught)["moved"]) == ["web2", "web3"]
    assert table(caught)["failed"] == {"web1": "KeyError: 'disks'"}


def test_a_host_that_falls_silent_half_way_does_not_hide_what_has_moved(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.before["h3", "virt.migrate"] = lambda: three.silent.add(("h3", "virt.host_info"))

    with pytest.raises(
        evacuate.NotAllMoved, match="h3 may not be empty .h3 does not answer"
    ) as caught:
        run(evacuate.evacuate, three, "h3", **HOW)

    assert list(table(caught)["moved"]) == ["web1"]


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_an_interruption_lets_moves_come_to_their_end_and_begins_no_other(cloud, run, said, times):
    three, held = cloud(3), threading.Event()
    for name in ("web1", "web2", "web3"):
        three.put(name, "h3")
    press = [os.getpid(), signal.SIGINT]
    presses = [threading.Timer(0.3 * n + 0.1, os.kill, press) for n in range(times)]
    end = threading.Timer(0.3 * times + 0.3, held.set)

    def begin():
        if not any(timer.is_alive() for timer in (*presses, end)) and not held.is_set():
            for timer in (*presses, end):
                timer.start()
        held.wait(10)

    three.before["h3", "virt.migrate"] = begin
    with pytest.raises(evacuate.NotAllMoved, match="h3 still has ") as caught:
        run(evacuate.evacuate, three, "h3", **{**HOW, "max_parallel": 1})

    (first,) = table(caught)["moved"]
    others = {"web1", "web2", "web3"} - {first}
    assert set(three.hosts["h3"]) == others
    why = "not begun, the command was interrupted"
    assert table(caught)["failed"] == dict.fromkeys(others, why)
    assert list(three.notes["h3"]) == [first]
    told = [line for line in said if "Going on" in line]
    assert len(told) == times and f"salt h3 virt.migrate_cancel {first} ends it" in told[0]


def test_an_interruption_while_moves_begin_begins_no_other(cloud, run, monkeypatch):
    three, held, begun = cloud(3), threading.Event(), threading.Event()
    for name in ("web1", "web2", "web3"):
        three.put(name, "h3")
    begin, calls = parallelmoves.threads.begin, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 2:
            begun.wait(10)
            threading.Timer(0.2, held.set).start()
            raise KeyboardInterrupt
        return begin(*args)

    three.before["h3", "virt.migrate"] = lambda: begun.set() or held.wait(10)
    monkeypatch.setattr(parallelmoves.threads, "begin", interrupted)
    with pytest.raises(evacuate.NotAllMoved, match="h3 still has ") as caught:
        run(evacuate.evacuate, three, "h3", **HOW)

    assert len(table(caught)["moved"]) == 1
    why = "not begun, the command was interrupted"
    assert [*table(caught)["failed"].values()] == [why, why]


def test_an_interruption_while_it_waits_says_what_has_moved(cloud, run, monkeypatch):
    three = cloud(3)
    three.put("web1", "h3")
    three.building["h3"] = ["web2"]

    def interrupted(_s):
        raise KeyboardInterrupt

    monkeypatch.setattr(evacuate.time, "sleep", interrupted)
    with pytest.raises(evacuate.NotAllMoved, match="h3 may not be empty .interrupted") as caught:
        run(evacuate.evacuate, three, "h3", **HOW)

    assert list(table(caught)["moved"]) == ["web1"]


def test_what_another_host_cannot_be_told_is_a_warning(cloud, run, opts):
    three = cloud(3)
    three.put("web1", "h2")
    three.proved(opts, "h1", web1=["h2"])
    three.refuses["h1"] = {"web1": ["it is full"]}
    three.before["h2", "virt.migrate"] = lambda: three.silent.add("h1")

    done = run(evacuate.evacuate, three, "h2", **HOW)

    assert done["moved"] == {"web1": "h3"} and done["failed"] == {}
    assert "it has moved, but that was not noted: h1 does not answer" in done["warnings"]["web1"]


def test_at_least_one_moves_at_a_time(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")

    with pytest.raises(BadArgument, match="max_parallel: 0; at least 1"):
        run(evacuate.evacuate, three, "h3", **{**HOW, "max_parallel": 0})
