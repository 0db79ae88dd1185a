"""A host is evacuated; silent hosts, and VMs that change meanwhile, are replaced."""

import os
import signal
import threading

import pytest
from playedhosts import HOW, SILENT, clouds, table
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory.locate import locate
from saltvirt.cluster.inventory.whereabouts import Purpose
from saltvirt.core.errors import BadArgument, VirtError
from saltvirt.migration.master import evacuate, migrate, parallelmoves
from saltvirt.vm.create.master import hostbuild


@pytest.fixture
def cloud(monkeypatch):
    """A function that makes a cloud of so many hosts, without sleep and with short waits."""
    monkeypatch.setattr(evacuate.time, "sleep", lambda _s: None)
    return clouds(monkeypatch)


def test_a_vm_that_has_moved_but_does_not_start_with_its_host_has_moved(cloud, run):
    three = cloud(3)
    three.put("web1", "h3", autostart=True)
    three.no_autostart |= {"h1", "h2"}

    result = run(evacuate.evacuate, three, "h3", **HOW)

    (host,) = three.where("web1")
    assert result["moved"] == {"web1": host} and result["failed"] == {}
    assert three.noted("h3") == {"web1": [host]}
    assert result["warnings"]["web1"] == "it does not start with its new host: no"


def test_a_vm_whose_move_got_no_reply_is_looked_for_before_it_is_moved_again(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.silent.add(("h3", "virt.migrate", "the answer"))

    result = run(evacuate.evacuate, three, "h3", **HOW)

    (host,) = three.where("web1")
    assert result["moved"] == {"web1": host} and result["failed"] == {}
    assert three.noted("h3") == {"web1": [host]}
    assert result["warnings"]["web1"] == f"it has moved, but: {SILENT.format('h3')}"
    assert three.asked.count(("h3", "virt.migrate")) == 1


def test_no_host_is_guessed_for_a_vm_while_its_host_is_silent(cloud, opts):
    three = cloud(3)
    three.put("web1", "h1")
    three.silent.add("h3")
    master = Cloud(opts=opts, settings=three, progress=lambda *_args, **_figures: None)
    location = locate(master, "web1", Purpose.REPORT)

    assert parallelmoves._find_arrival(location, "h3") is None
    assert parallelmoves._find_arrival(location, "h2") == "h1"
    assert parallelmoves._find_arrival(location, "h1") is None


def test_no_vm_moves_whose_note_cannot_be_written(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.silent.add(("h3", "virt.evacuated"))

    with pytest.raises(hostbuild.HostUnresponsive, match="h3 does not answer"):
        run(evacuate.evacuate, three, "h3", **HOW)

    assert three.where("web1") == ["h3"]


def test_the_target_of_a_vm_is_noted_before_it_moves(cloud, run):
    three, notes_before = cloud(3), []
    three.put("web1", "h3")
    three.before["h3", "virt.migrate"] = lambda: notes_before.append(three.noted("h3"))

    result = run(evacuate.evacuate, three, "h3", **HOW)

    assert notes_before == [{"web1": [result["moved"]["web1"]]}]


def test_the_note_of_a_vm_that_did_not_move_is_removed(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")

    def fail():
        raise hostbuild.HostCommandFailed("h3: disk full")

    three.before["h3", "virt.migrate"] = fail
    with pytest.raises(
        evacuate.NotAllMoved, match="h3 still has web1; .*salt-run virt.evacuate h3"
    ):
        run(evacuate.evacuate, three, "h3", **HOW)

    assert three.where("web1") == ["h3"] and three.noted("h3") == {}


def test_the_note_of_a_vm_whose_move_may_go_on_stays(cloud, run):
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
    planned_host = run(evacuate.dry_run, three, "h3", True)["moves"]["web1"]
    (other_host,) = {"h1", "h2"} - {planned_host}
    three.before["h3", "virt.evacuated"] = lambda: three.refuses.update(
        {planned_host: {"web1": ["x"]}}
    )

    result = run(evacuate.evacuate, three, "h3", **HOW)

    assert result["moved"] == {"web1": other_host} and three.noted("h3") == {"web1": [other_host]}


def test_an_arriving_vm_is_named_waited_for_and_moved_as_well(cloud, run, said):
    three, look_times = cloud(3), []
    three.put("web1", "h3")
    three.building["h3"] = ["web2"]

    def look():
        look_times.append(1)
        if len(look_times) == 2:
            three.put("web2", "h3")  # defined, and not complete yet
        if len(look_times) == 4:
            three.building.clear()

    three.before["h3", "virt.host_info"] = look

    result = run(evacuate.evacuate, three, "h3", **HOW)

    assert sorted(result["moved"]) == ["web1", "web2"] and result["stays"] == {}
    assert three.hosts["h3"] == {}
    assert any(line == "Waiting at most 6 s for web2 on the way in" for line in said)


def test_a_vm_that_does_not_arrive_in_time_is_named_and_the_host_is_not_empty(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.put("web2", "h3")
    three.building["h3"] = ["web2", "web3"]

    with pytest.raises(evacuate.NotAllMoved, match="h3 still has web2, web3") as excinfo:
        run(evacuate.evacuate, three, "h3", **HOW)

    assert list(table(excinfo)["moved"]) == ["web1"], "the others go all the same"
    assert table(excinfo)["stays"]["web3"].startswith(
        "still on its way in after 6 s; when the virt"
    )
    # The message must not advise a purge: it would remove the VM on the host that still has it.
    assert "salt-run virt.settle web3" in table(excinfo)["stays"]["web3"]
    assert "purge" not in table(excinfo)["stays"]["web3"]
    assert three.where("web2") == ["h3"], "what is being built is left alone"


def test_a_plan_names_an_arriving_vm(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.put("web2", "h3")
    three.building["h3"] = ["web2"]

    plan = run(evacuate.dry_run, three, "h3", True)

    assert list(plan["moves"]) == ["web1"] and plan["stays"] == {}
    assert plan["warnings"] == {"web2": "on its way in: it is waited for, and then moved too"}


def test_an_interrupted_build_is_named_with_the_command_that_ends_it(cloud, run):
    three, reason = cloud(3), "the record /a/build/db.json cannot be read (x); move it away"
    three.put("web1", "h3")
    three.unfinished["h3"] = ["web2"]
    three.unreadable["h3"] = {"db": reason}

    plan = run(evacuate.dry_run, three, "h3", True)
    result = run(evacuate.evacuate, three, "h3", **HOW)

    # A purge would refuse a record that cannot be read.
    assert plan["warnings"] == result["warnings"]
    assert result["warnings"]["db"] == reason
    assert "salt h3 virt.purge web2 removes it" in result["warnings"]["web2"]


def test_a_host_with_a_vm_that_libvirt_does_not_know_of_is_not_empty(cloud, run):
    three, reason = cloud(3), "libvirt has not loaded /etc/libvirt/qemu/db.xml"
    three.put("web1", "h3")
    three.not_loaded["h3"] = {"db": reason}

    plan = run(evacuate.dry_run, three, "h3", True)
    with pytest.raises(evacuate.NotAllMoved, match="h3 still has db; ") as excinfo:
        run(evacuate.evacuate, three, "h3", **HOW)

    assert list(table(excinfo)["moved"]) == ["web1"]
    assert plan["stays"] == table(excinfo)["stays"] == {"db": reason}


def test_a_purge_in_between_is_no_failure(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.put("web2", "h3")
    three.before["h3", "virt.evacuated"] = lambda: three.hosts["h3"].pop("web2", None)

    result = run(evacuate.evacuate, three, "h3", **HOW)

    assert list(result["moved"]) == ["web1"] and result["failed"] == {}
    assert result["gone"] == ["web2"] and list(three.notes["h3"]) == ["web1"]


def test_an_answer_that_cannot_be_read_removes_no_note_of_a_vm(cloud, run):
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

    result = run(evacuate.evacuate, three, "h3", **HOW)

    assert list(result["moved"]) == ["web1"] and result["stays"] == result["failed"] == {}


def test_a_stop_in_between_is_no_failure(cloud, run):
    three, attempts = cloud(3), []
    three.put("web1", "h3")

    def stop_and_fail():
        attempts.append(1)
        if len(attempts) == 1:
            three.hosts["h3"]["web1"]["state"] = "shutdown"
            raise hostbuild.HostCommandFailed("h3: domain is not running")

    three.before["h3", "virt.migrate"] = stop_and_fail

    result = run(evacuate.evacuate, three, "h3", **HOW)

    assert list(result["moved"]) == ["web1"] and result["failed"] == {}


def test_a_vm_that_is_started_while_stopped_ones_may_stay_is_moved(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.put("web2", "h3", state="shutdown")
    start = {"state": "running"}
    three.before["h3", "virt.migrate"] = lambda: three.hosts["h3"].get("web2", {}).update(start)

    result = run(evacuate.evacuate, three, "h3", **{**HOW, "with_stopped": False})

    assert sorted(result["moved"]) == ["web1", "web2"] and result["stays"] == {}


def test_a_stopped_vm_may_stay(cloud, run):
    three = cloud(3)
    three.put("web1", "h3", state="shutdown")

    result = run(evacuate.evacuate, three, "h3", **{**HOW, "with_stopped": False})

    assert result["stays"] == {"web1": "it is stopped"} and result["moved"] == {}


def test_an_unexpected_fault_does_not_stop_the_others(cloud, run, monkeypatch):
    three, real_migrate = cloud(3), migrate.migrate
    for name in ("web1", "web2", "web3"):
        three.put(name, "h3")

    def fail_for_web1(master, name, *args):
        if name == "web1":
            raise KeyError("disks")
        return real_migrate(master, name, *args)

    monkeypatch.setattr(migrate, "migrate", fail_for_web1)
    with pytest.raises(evacuate.NotAllMoved) as excinfo:
        run(evacuate.evacuate, three, "h3", **HOW)

    assert sorted(table(excinfo)["moved"]) == ["web2", "web3"]
    assert table(excinfo)["failed"] == {"web1": "KeyError: 'disks'"}


def test_a_host_that_falls_silent_half_way_does_not_hide_what_has_moved(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.before["h3", "virt.migrate"] = lambda: three.silent.add(("h3", "virt.host_info"))

    with pytest.raises(
        evacuate.NotAllMoved, match="h3 may not be empty .h3 does not answer"
    ) as excinfo:
        run(evacuate.evacuate, three, "h3", **HOW)

    assert list(table(excinfo)["moved"]) == ["web1"]


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_an_interruption_lets_moves_come_to_their_end_and_begins_no_other(cloud, run, said, times):
    three, may_end = cloud(3), threading.Event()
    for name in ("web1", "web2", "web3"):
        three.put(name, "h3")
    signal_args = [os.getpid(), signal.SIGINT]
    interrupts = [threading.Timer(0.3 * n + 0.1, os.kill, signal_args) for n in range(times)]
    release_timer = threading.Timer(0.3 * times + 0.3, may_end.set)

    def start_timers():
        if (
            not any(timer.is_alive() for timer in (*interrupts, release_timer))
            and not may_end.is_set()
        ):
            for timer in (*interrupts, release_timer):
                timer.start()
        may_end.wait(10)

    three.before["h3", "virt.migrate"] = start_timers
    with pytest.raises(evacuate.NotAllMoved, match="h3 still has ") as excinfo:
        run(evacuate.evacuate, three, "h3", **{**HOW, "max_parallel": 1})

    (moved_name,) = table(excinfo)["moved"]
    other_names = {"web1", "web2", "web3"} - {moved_name}
    assert set(three.hosts["h3"]) == other_names
    reason = "not begun, the command was interrupted"
    assert table(excinfo)["failed"] == dict.fromkeys(other_names, reason)
    assert list(three.notes["h3"]) == [moved_name]
    notices = [line for line in said if "Going on" in line]
    assert (
        len(notices) == times and f"salt h3 virt.migrate_cancel {moved_name} ends it" in notices[0]
    )


def test_an_interruption_while_moves_begin_begins_no_other(cloud, run, monkeypatch):
    three, may_end, has_begun = cloud(3), threading.Event(), threading.Event()
    for name in ("web1", "web2", "web3"):
        three.put(name, "h3")
    real_begin, calls = parallelmoves.threads.begin, []

    def interrupt_second(*args):
        calls.append(args)
        if len(calls) == 2:
            has_begun.wait(10)
            threading.Timer(0.2, may_end.set).start()
            raise KeyboardInterrupt
        return real_begin(*args)

    three.before["h3", "virt.migrate"] = lambda: has_begun.set() or may_end.wait(10)
    monkeypatch.setattr(parallelmoves.threads, "begin", interrupt_second)
    with pytest.raises(evacuate.NotAllMoved, match="h3 still has ") as excinfo:
        run(evacuate.evacuate, three, "h3", **HOW)

    assert len(table(excinfo)["moved"]) == 1
    reason = "not begun, the command was interrupted"
    assert [*table(excinfo)["failed"].values()] == [reason, reason]


def test_an_interruption_while_it_waits_reports_what_has_moved(cloud, run, monkeypatch):
    three = cloud(3)
    three.put("web1", "h3")
    three.building["h3"] = ["web2"]

    def interrupt(_s):
        raise KeyboardInterrupt

    monkeypatch.setattr(evacuate.time, "sleep", interrupt)
    with pytest.raises(evacuate.NotAllMoved, match="h3 may not be empty .interrupted") as excinfo:
        run(evacuate.evacuate, three, "h3", **HOW)

    assert list(table(excinfo)["moved"]) == ["web1"]


def test_a_host_that_cannot_note_a_move_is_a_warning(cloud, run, opts):
    three = cloud(3)
    three.put("web1", "h2")
    three.proved(opts, "h1", web1=["h2"])
    three.refuses["h1"] = {"web1": ["it is full"]}
    three.before["h2", "virt.migrate"] = lambda: three.silent.add("h1")

    result = run(evacuate.evacuate, three, "h2", **HOW)

    assert result["moved"] == {"web1": "h3"} and result["failed"] == {}
    assert "it has moved, but that was not noted: h1 does not answer" in result["warnings"]["web1"]


def test_at_least_one_moves_at_a_time(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")

    with pytest.raises(BadArgument, match="max_parallel: 0; at least 1"):
        run(evacuate.evacuate, three, "h3", **{**HOW, "max_parallel": 0})
