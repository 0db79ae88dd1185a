"""A rebalance by the master, with the replaced hosts of the other moves' tests."""

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
def uneven_cloud(cloud):
    """A cloud of three hosts, of which the first has six VMs."""
    new_cloud = cloud(3)
    for number in range(1, 7):
        new_cloud.put(f"web{number}", "h1")
    return new_cloud


@pytest.fixture
def stages():
    """The stages that were shown as progress, with their details."""
    return []


@pytest.fixture
def run(opts, stages):
    """A function that rebalances."""

    def call(**options):
        def progress(stage, **figures):
            stages.append((stage, figures.get("detail")))

        master = Cloud(opts=opts, settings=MasterSettings(), progress=progress)
        return rebalance.balance(master, **{**EVEN, "is_dry": False, **options})

    return call


@pytest.fixture
def fail_moves(monkeypatch):
    """A function that makes the moves of some VMs end with given errors."""
    real_migrate = migrate.migrate

    def fail(errors):
        def fail_or_migrate(master, name, *args):
            if name in errors:
                raise errors[name]
            return real_migrate(master, name, *args)

        monkeypatch.setattr(migrate, "migrate", fail_or_migrate)

    return fail


def disk_full_error(name):
    """Return the error of a move that has failed."""
    return migrate.MoveFailed(f"VM {name!r} stays where it is: disk full")


def test_a_dry_run_reports_the_moves_and_the_imbalance(uneven_cloud, run):
    result = run(is_dry=True)

    assert len(result["moves"]) == 4 and result["stays"] == {}
    assert result["imbalance"] > 0.2
    assert len(uneven_cloud.hosts["h1"]) == 6
    run()
    assert [len(vms) for vms in uneven_cloud.hosts.values()] == [2, 2, 2]


def test_the_load_is_measured_in_parts_with_progress(uneven_cloud, run, stages, monkeypatch):
    calls, real_survey = [], inventory.survey

    def note_and_survey(master, targets, fun, arg=(), kwarg=None, *, timeout_s=None):
        if fun == "virt.load":
            calls.append((timeout_s, *arg))
        return real_survey(master, targets, fun, arg, kwarg, timeout_s=timeout_s)

    monkeypatch.setattr(inventory, "survey", note_and_survey)
    run(is_dry=True, window_s=60)

    # A minion that measures for a part gets that much more time to reply.
    assert calls == [(MasterSettings().timeout_s + 5, 5)] * 12
    assert stages[0] == ("Watching", "3 hypervisors, 0 of 60 s")
    assert stages[11] == ("Watching", "3 hypervisors, 55 of 60 s")


@pytest.mark.parametrize(
    ("window_s", "parts"), [(1, 1), (6, 6), (24, 12), (60, 12), (100, 12), (3600, 60)]
)
def test_a_window_has_parts_of_at_most_a_minute(uneven_cloud, run, window_s, parts):
    run(is_dry=True, window_s=window_s)

    assert uneven_cloud.asked.count(("h1", "virt.load")) == parts


def test_a_move_that_fails_does_not_keep_the_others_from_being_made(uneven_cloud, run, fail_moves):
    first, second, *_further_moves = run(is_dry=True)["moves"]
    fail_moves({second["name"]: disk_full_error(second["name"])})

    with pytest.raises(rebalance.NotEven) as excinfo:
        run()

    table = excinfo.value.table
    assert table["stays"] == {second["name"]: f"VM {second['name']!r} stays where it is: disk full"}
    assert first in table["moves"] and len(table["moves"]) == 4
    assert [len(vms) for vms in uneven_cloud.hosts.values()] == [2, 2, 2]
    assert f"moved: {first['name']} to {first['to']}" in str(excinfo.value)


def test_a_cloud_in_which_nothing_moves_is_not_tried_for_ever(cloud, run, fail_moves):
    many = cloud(2)
    names = [f"web{number:02}" for number in range(40)]
    for name in names:
        many.put(name, "h1")
    fail_moves({name: disk_full_error(name) for name in names})

    with pytest.raises(
        rebalance.NotEven, match="too many moves have failed; moved: nothing"
    ) as excinfo:
        run()

    stays = excinfo.value.table["stays"]
    assert sum("disk full" in reason for reason in stays.values()) == 16


@pytest.mark.slow
def test_an_interruption_lets_begun_moves_end_and_reports_them(uneven_cloud, run, stages):
    first, *other_moves = run(is_dry=True)["moves"]
    may_end = threading.Event()
    interrupt = threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT])
    release_timer = threading.Timer(0.4, may_end.set)

    def start_timers():
        for timer in (interrupt, release_timer):
            timer.start()
        may_end.wait(10)

    uneven_cloud.before["h1", "virt.migrate"] = start_timers
    with pytest.raises(rebalance.NotEven, match="the command was interrupted; moved: ") as excinfo:
        run()

    table = excinfo.value.table
    assert table["moves"] == [first]
    reason = "not begun, the command was interrupted"
    assert table["stays"] == {step["name"]: reason for step in other_moves}
    assert [stage for stage, _detail in stages if "Going on" in stage]


def test_moves_are_made_at_once_as_far_as_hosts_may_have_several(uneven_cloud, run, stages):
    two_moves = threading.Barrier(2, timeout=5)
    uneven_cloud.before["h1", "virt.migrate"] = two_moves.wait

    result = run(max_parallel=4, per_host=2)

    assert len(result["moves"]) == 4 and two_moves.n_waiting == 0
    assert [len(vms) for vms in uneven_cloud.hosts.values()] == [2, 2, 2]
    details = [detail for stage, detail in stages if stage == "Done"]
    assert len(details) == 3 and details[-1].startswith("3 of 4 VMs, about ")


@pytest.mark.parametrize("argument", ["max_parallel", "per_host"])
def test_a_pace_at_which_nothing_moves_is_refused(argument):
    with pytest.raises(BadArgument, match=f"{argument}: 0; at least 1"):
        parallelmoves.Pace(**{**PACE, argument: 0})


def test_the_moved_vms_are_reported_if_the_next_moves_cannot_be_planned(
    uneven_cloud, run, fail_moves, monkeypatch
):
    first, second, *_further_moves = run(is_dry=True)["moves"]
    fail_moves({second["name"]: disk_full_error(second["name"])})
    real_plan, calls = rebalance._plan_steps, []

    def plan_once(*args):
        calls.append(args)
        if len(calls) > 1:
            raise migrate.MoveFailed("the Salt master does not answer")
        return real_plan(*args)

    monkeypatch.setattr(rebalance, "_plan_steps", plan_once)
    with pytest.raises(rebalance.NotEven, match="does not answer; moved: ") as excinfo:
        run()

    assert excinfo.value.table["moves"] == [first]


@pytest.mark.parametrize("fun", ["virt.load", "virt.host_info", "virt.migration_info"])
def test_a_host_without_a_complete_answer_is_named(uneven_cloud, run, fun):
    uneven_cloud.silent.add(("h3", fun))

    result = run(is_dry=True)

    assert result["unreachable"] == ["h3"] and "failed" not in result
    assert {step["to"] for step in result["moves"]} == {"h2"}
    assert uneven_cloud.asked.count(("h3", "virt.load")) == (1 if fun == "virt.load" else 12)


def test_a_move_whose_answer_is_lost_is_looked_for_and_counts(uneven_cloud, run):
    uneven_cloud.silent.add(("h1", "virt.migrate", "the answer"))

    result = run(max_parallel=2, per_host=2)

    assert len(result["moves"]) == 4 and result["stays"] == {}
    assert [len(vms) for vms in uneven_cloud.hosts.values()] == [2, 2, 2]


@pytest.mark.parametrize("fun", ["virt.load", "virt.host_info", "virt.migration_info"])
def test_a_cloud_without_answers_is_not_called_even(uneven_cloud, run, fun):
    uneven_cloud.silent |= {(host, fun) for host in uneven_cloud.hosts}

    with pytest.raises(MasterError, match="^no hypervisor answers: h1: does not answer; h2: "):
        run()


def test_only_the_host_of_a_vm_describes_it(cloud, run, monkeypatch):
    three = cloud(3)
    for number in range(1, 7):
        three.put(f"web{number}", "h1", stay=True)
    real_info = three._migration_info

    def false_info(host, name=None):
        false_vms = {vm: {**info, "stay": False} for vm, info in three.hosts["h1"].items()}
        return false_vms if host == "h3" and name is None else real_info(host, name)

    monkeypatch.setattr(three, "_migration_info", false_info)

    assert run(is_dry=True)["moves"] == []
