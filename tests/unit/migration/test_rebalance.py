"""A rebalance as the master leads it; the hosts are those of the other moves' tests."""

import os
import signal
import threading

import pytest
from playedhosts import clouds
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.core.errors import BadArgument, MasterError
from saltvirt.core.options.config import MasterSettings
from saltvirt.migration.master import migrate, parallelmoves, rebalance

PACE = {"max_parallel": 1, "per_host": 1}
EVEN = {"max_moves": 5, "threshold": 0.02, "window_s": 24, **PACE}


@pytest.fixture
def cloud(monkeypatch):
    """A function that makes a cloud of so many hosts."""
    return clouds(monkeypatch)


@pytest.fixture
def lopsided(cloud):
    """A cloud of three hosts, of which the first has six VMs."""
    made = cloud(3)
    for number in range(1, 7):
        made.put(f"web{number}", "h1")
    return made


@pytest.fixture
def said():
    """What was shown as progress."""
    return []


@pytest.fixture
def run(opts, said):
    """A function that rebalances."""

    def call(**given):
        def progress(stage, **figures):
            said.append((stage, figures.get("detail")))

        master = Cloud(opts=opts, settings=MasterSettings(), progress=progress)
        return rebalance.balance(master, **{**EVEN, "is_dry": False, **given})

    return call


@pytest.fixture
def failing(monkeypatch):
    """A function that lets the moves of some VMs end as they are told to."""
    move = migrate.migrate

    def fail(how):
        def moved(master, name, *args):
            if name in how:
                raise how[name]
            return move(master, name, *args)

        monkeypatch.setattr(migrate, "migrate", moved)

    return fail


def full(name):
    """Return the error of a move that did not work."""
    return migrate.MoveFailed(f"VM {name!r} stays where it is: disk full")


def test_a_dry_run_says_what_would_be_done_and_how_uneven_it_is(lopsided, run):
    done = run(is_dry=True)

    assert len(done["moves"]) == 4 and done["stays"] == {}
    assert done["imbalance"] > 0.2
    assert len(lopsided.hosts["h1"]) == 6
    run()
    assert [len(vms) for vms in lopsided.hosts.values()] == [2, 2, 2]


def test_the_load_is_watched_in_parts_with_progress(lopsided, run, said, monkeypatch):
    asked, survey = [], inventory.survey

    def noted(master, targets, fun, arg=(), kwarg=None, *, timeout_s=None):
        if fun == "virt.load":
            asked.append((timeout_s, *arg))
        return survey(master, targets, fun, arg, kwarg, timeout_s=timeout_s)

    monkeypatch.setattr(inventory, "survey", noted)
    run(is_dry=True, window_s=60)

    # A minion that works for a part is waited for that much longer.
    assert asked == [(MasterSettings().timeout_s + 5, 5)] * 12
    assert said[0] == ("Watching", "3 hypervisors, 0 of 60 s")
    assert said[11] == ("Watching", "3 hypervisors, 55 of 60 s")


@pytest.mark.parametrize(
    ("window_s", "parts"), [(1, 1), (6, 6), (24, 12), (60, 12), (100, 12), (3600, 60)]
)
def test_a_window_has_parts_of_at_most_a_minute(lopsided, run, window_s, parts):
    run(is_dry=True, window_s=window_s)

    assert lopsided.asked.count(("h1", "virt.load")) == parts


def test_a_move_that_fails_does_not_keep_the_others_from_being_made(lopsided, run, failing):
    first, second, *_rest = run(is_dry=True)["moves"]
    failing({second["name"]: full(second["name"])})

    with pytest.raises(rebalance.NotEven) as caught:
        run()

    table = caught.value.table
    assert table["stays"] == {second["name"]: f"VM {second['name']!r} stays where it is: disk full"}
    assert first in table["moves"] and len(table["moves"]) == 4
    assert [len(vms) for vms in lopsided.hosts.values()] == [2, 2, 2]
    assert f"moved: {first['name']} to {first['to']}" in str(caught.value)


def test_a_cloud_in_which_nothing_moves_is_not_tried_for_ever(cloud, run, failing):
    many = cloud(2)
    names = [f"web{number:02}" for number in range(40)]
    for name in names:
        many.put(name, "h1")
    failing({name: full(name) for name in names})

    with pytest.raises(
        rebalance.NotEven, match="too many moves have failed; moved: nothing"
    ) as caught:
        run()

    stays = caught.value.table["stays"]
    assert sum("disk full" in why for why in stays.values()) == 16


@pytest.mark.slow
def test_an_interruption_lets_what_is_under_way_end_and_says_what_was_moved(lopsided, run, said):
    first, *others = run(is_dry=True)["moves"]
    held = threading.Event()
    press = threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT])
    end = threading.Timer(0.4, held.set)

    def begin():
        for timer in (press, end):
            timer.start()
        held.wait(10)

    lopsided.before["h1", "virt.migrate"] = begin
    with pytest.raises(rebalance.NotEven, match="the command was interrupted; moved: ") as caught:
        run()

    table = caught.value.table
    assert table["moves"] == [first]
    why = "not begun, the command was interrupted"
    assert table["stays"] == {step["name"]: why for step in others}
    assert [stage for stage, _detail in said if "Going on" in stage]


def test_moves_are_made_at_once_as_far_as_hosts_may_have_several(lopsided, run, said):
    both = threading.Barrier(2, timeout=5)
    lopsided.before["h1", "virt.migrate"] = both.wait

    done = run(max_parallel=4, per_host=2)

    assert len(done["moves"]) == 4 and both.n_waiting == 0
    assert [len(vms) for vms in lopsided.hosts.values()] == [2, 2, 2]
    told = [detail for stage, detail in said if stage == "Done"]
    assert len(told) == 3 and told[-1].startswith("3 of 4 VMs, about ")


@pytest.mark.parametrize("argument", ["max_parallel", "per_host"])
def test_a_pace_at_which_nothing_moves_is_refused(argument):
    with pytest.raises(BadArgument, match=f"{argument}: 0; at least 1"):
        parallelmoves.Pace(**{**PACE, argument: 0})


def test_what_was_moved_is_told_if_the_rest_cannot_be_planned(lopsided, run, failing, monkeypatch):
    first, second, *_rest = run(is_dry=True)["moves"]
    failing({second["name"]: full(second["name"])})
    planned, calls = rebalance._plan_steps, []

    def once(*args):
        calls.append(args)
        if len(calls) > 1:
            raise migrate.MoveFailed("the Salt master does not answer")
        return planned(*args)

    monkeypatch.setattr(rebalance, "_plan_steps", once)
    with pytest.raises(rebalance.NotEven, match="does not answer; moved: ") as caught:
        run()

    assert caught.value.table["moves"] == [first]


@pytest.mark.parametrize("fun", ["virt.load", "virt.host_info", "virt.migration_info"])
def test_a_host_that_cannot_say_all_of_it_is_named(lopsided, run, fun):
    lopsided.silent.add(("h3", fun))

    done = run(is_dry=True)

    assert done["unreachable"] == ["h3"] and "failed" not in done
    assert {step["to"] for step in done["moves"]} == {"h2"}
    assert lopsided.asked.count(("h3", "virt.load")) == (1 if fun == "virt.load" else 12)


def test_a_move_whose_answer_is_lost_is_looked_for_and_counts(lopsided, run):
    lopsided.silent.add(("h1", "virt.migrate", "the answer"))

    done = run(max_parallel=2, per_host=2)

    assert len(done["moves"]) == 4 and done["stays"] == {}
    assert [len(vms) for vms in lopsided.hosts.values()] == [2, 2, 2]


@pytest.mark.parametrize("fun", ["virt.load", "virt.host_info", "virt.migration_info"])
def test_a_cloud_that_says_nothing_is_not_called_even(lopsided, run, fun):
    lopsided.silent |= {(host, fun) for host in lopsided.hosts}

    with pytest.raises(MasterError, match="^no hypervisor answers: h1: does not answer; h2: "):
        run()


def test_only_the_host_that_has_a_vm_says_what_that_is(cloud, run, monkeypatch):
    three = cloud(3)
    for number in range(1, 7):
        three.put(f"web{number}", "h1", stay=True)
    said = three._migration_info

    def lies(host, name=None):
        others = {vm: {**about, "stay": False} for vm, about in three.hosts["h1"].items()}
        return others if host == "h3" and name is None else said(host, name)

    monkeypatch.setattr(three, "_migration_info", lies)

    assert run(is_dry=True)["moves"] == []
