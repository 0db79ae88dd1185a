"""Moves of several VMs by the master; silent hosts are replaced."""

import threading
from collections import Counter
from functools import partial

import pytest
from playedhosts import SILENT, clouds
from saltvirt.core.errors import BadArgument, NoHostFits
from saltvirt.migration.master import evacuate, migrate


@pytest.fixture
def cloud(monkeypatch):
    """A function that makes a cloud of so many hosts."""
    return clouds(monkeypatch)


def test_a_plan_is_not_made_of_hosts_that_have_not_been_asked(cloud, run):
    nine = cloud(9)
    for name in ("web1", "web2"):
        nine.put(name, "h9")
    reasons = ["its CPU does not suffice"]
    nine.refuses = {host: {"web1": reasons} for host in nine.hosts}

    plan = run(evacuate.dry_run, nine, "h9", True)

    assert list(plan["moves"]) == ["web2"]
    assert plan["stays"]["web1"].count(reasons[0]) == 8
    checks = [host for host, fun in nine.asked if fun == "virt.migrate_check"]
    assert len(checks) <= 2 * 8 and set(checks) == set(nine.hosts) - {"h9"}


def test_the_last_host_that_takes_a_vm_is_found(cloud, run):
    nine = cloud(9)
    nine.put("web1", "h9")
    nine.refuses = {f"h{n}": {"web1": ["its CPU does not suffice"]} for n in range(1, 8)}

    assert run(evacuate.dry_run, nine, "h9", True)["moves"] == {"web1": "h8"}


def test_a_dry_run_goes_on_when_the_best_host_has_fallen_silent(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.silent.add(("h1", "virt.migrate_check"))

    assert run(migrate.dry_run, three, "web1", None, {})["to"] == "h2"
    three.refuses["h2"] = {"web1": ["a file is there already"]}
    with pytest.raises(NoHostFits) as excinfo:
        run(migrate.dry_run, three, "web1", None, {})
    assert excinfo.value.reasons["h1"] == SILENT.format("h1")


@pytest.mark.parametrize("target", ["", None])
def test_no_target_is_3006s_empty_one(cloud, run, target):
    three = cloud(3)
    three.put("web1", "h3")

    assert run(migrate.dry_run, three, "web1", target, {})["to"] == "h1"
    assert run(migrate.migrate, three, "web1", target, {})["to"] == "h1"


@pytest.mark.parametrize("options", [{"max_bandwith": 5}, {"limit_s": 0}, {"password": "secret"}])
def test_a_dry_run_refuses_a_keyword_as_the_move_would(cloud, run, options):
    three = cloud(3)
    three.put("web1", "h3")

    for command in (migrate.dry_run, migrate.migrate):
        with pytest.raises(BadArgument, match=next(iter(options))):
            run(command, three, "web1", None, options)
    assert three.asked == [], "nobody is asked before"


def test_silent_hosts_are_named_where_a_vm_must_stay(cloud, run):
    three = cloud(3)
    three.put("web1", "h3")
    three.put("web2", "h3", obstacles=["it has snapshots"])
    three.silent |= {"h1", "h2"}

    stays = run(evacuate.dry_run, three, "h3", True)["stays"]

    assert stays == {"web1": "h1: does not answer; h2: does not answer", "web2": "it has snapshots"}
    single_host = cloud(1)
    single_host.put("web1", "h1")
    assert run(evacuate.dry_run, single_host, "h1", True)["stays"] == {
        "web1": "there is no other hypervisor"
    }


def asked_hosts(cloud, fun="virt.host_info"):
    """Return the hosts that were asked for a function."""
    return sorted({host for host, called_function in cloud.asked if called_function == fun})


def test_a_move_between_two_hosts_that_are_known_asks_only_them(cloud, run):
    nine = cloud(9)
    nine.put("web1", "h3")

    assert run(migrate.migrate, nine, "web1", "h5", {}, "h3")["to"] == "h5"
    assert asked_hosts(nine) == ["h3", "h5"]


def test_a_vm_with_an_affinity_group_asks_all_hosts_for_the_group(cloud, run):
    nine = cloud(9)
    nine.put("web1", "h3", affinity=["shop"])

    assert run(migrate.migrate, nine, "web1", "h5", {}, "h3")["to"] == "h5"
    assert asked_hosts(nine) == sorted(nine.hosts)
    # Each of them once.
    assert len([1 for _host, fun in nine.asked if fun == "virt.host_info"]) == 9


def test_a_vm_of_a_group_of_racks_asks_all_hosts_for_their_racks(cloud, run):
    """web2 came to h4, in the rack of h5, while web1 was on another host."""
    nine = cloud(9)
    nine.tags["h4"] = nine.tags["h5"] = {"rack": "a"}
    nine.put("web1", "h3", anti_affinity=["db@rack"])
    nine.put("web2", "h4", anti_affinity=["db@rack"])

    with pytest.raises(NoHostFits, match="web2 of the anti-affinity group db@rack is in rack a"):
        run(migrate.migrate, nine, "web1", "h5", {}, "h3")
    assert nine.where("web1") == ["h3"]


def test_an_evacuation_of_many_asks_all_hosts_once_and_shows_its_progress(cloud, run, said):
    nine = cloud(9)
    for number in range(6):
        nine.put(f"web{number}", "h9")

    result = run(evacuate.evacuate, nine, "h9", max_parallel=2, with_stopped=True, wait_s=0)

    assert sorted(result["moved"]) == [f"web{n}" for n in range(6)] and nine.hosts["h9"] == {}
    # One plan asks all hosts; then each move asks its two hosts.
    infos = [host for host, fun in nine.asked if fun == "virt.host_info"]
    assert len(infos) <= 2 + 2 * 9 + 2 * 6
    assert [line for line in said if line.startswith("Done ")][-1].startswith("Done 5 of 6 VMs, ")


def test_a_dead_host_is_waited_for_as_often_for_ten_vms_as_for_two(cloud, run):
    times = []
    for count in (2, 10):
        nine = cloud(9)
        for number in range(count):
            nine.put(f"web{number}", "h9")
        nine.silent.add("h8")
        result = run(evacuate.evacuate, nine, "h9", max_parallel=4, with_stopped=True, wait_s=0)
        assert len(result["moved"]) == count
        times.append([host for host, _fun in nine.asked].count("h8"))

    # The dead host takes no VM, so no move asks it.
    assert times[0] == times[1]


def test_no_other_host_takes_more_at_a_time_than_it_may(cloud, run):
    three, running, most_running = cloud(3), Counter(), Counter()
    for number in range(8):
        three.put(f"web{number}", "h3")
    lock = threading.Lock()

    def count(host, change):
        with lock:
            running[host] += change
            most_running[host] = max(most_running[host], running[host])

    for host in ("h1", "h2"):
        three.before[host, "virt.migrate_prepare"] = partial(count, host, 1)
        three.after[host, "virt.migrate_step end"] = partial(count, host, -1)
    options = {"max_parallel": 8, "per_host": 1, "with_stopped": True, "wait_s": 0}
    result = run(evacuate.evacuate, three, "h3", **options)

    assert len(result["moved"]) == 8 and set(result["moved"].values()) == {"h1", "h2"}
    assert dict(most_running) == {"h1": 1, "h2": 1}
