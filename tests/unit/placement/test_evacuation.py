"""The targets of many VMs at once: a pure function, tried with whole clouds."""

import copy
from dataclasses import replace

import told
from hypothesis import given, settings
from hypothesis import strategies as st
from saltvirt.placement import evacuation
from tightclouds import host, moving


def by_name(*vms):
    """Return facts by their VM's name."""
    return {vm.name: vm for vm in vms}


def test_big_vms_go_first_and_each_counts_for_the_next():
    hosts = {"a": host(100), "b": host(60)}

    targets, stays = evacuation.evacuate(
        hosts, by_name(moving("small", 40), moving("big", 90), moving("mid", 50))
    )

    assert list(targets) == ["big", "mid"] and targets == {"big": "a", "mid": "b"}
    assert "memory wanted" in stays["small"] and "a: " in stays["small"]


def test_a_vm_that_cannot_move_stays_with_its_reason():
    targets, stays = evacuation.evacuate(
        {"a": host(1000)},
        by_name(
            moving("pinned", 10, obstacles=["it has a device of this host"]), moving("free", 10)
        ),
    )

    assert targets == {"free": "a"} and stays == {"pinned": "it has a device of this host"}


def test_groups_stay_together_and_apart():
    hosts = {name: host(1000) for name in "abc"}
    targets, stays = evacuation.evacuate(
        hosts,
        by_name(
            moving("w1", 10, affinity=["web"]),
            moving("w2", 20, affinity=["web"]),
            moving("d1", 30, anti_affinity=["db"]),
            moving("d2", 30, anti_affinity=["db"]),
        ),
    )

    assert targets["w1"] == targets["w2"] and targets["d1"] != targets["d2"] and not stays


def test_a_group_of_which_one_cannot_move_stays_together():
    obstacles = ["it has snapshots"]

    targets, stays = evacuation.evacuate(
        {"a": host(1000)},
        by_name(
            moving("w1", 10, affinity=["web"]),
            moving("w2", 20, affinity=["web"], obstacles=obstacles),
            moving("free", 10),
        ),
    )

    assert targets == {"free": "a"}
    assert stays == {
        "w1": "w2, which stays with it: it has snapshots",
        "w2": "it has snapshots",
    }


def test_a_vm_that_joins_its_group_on_another_host_does_not_wait_for_a_stuck_one():
    info = host(1000, vms={"w0": {"affinity": ["web"]}})

    moves, stays = evacuation.evacuate(
        {"a": host(1000), "b": info},
        by_name(
            moving("w1", 10, affinity=["web"]),
            moving("w2", 20, affinity=["web"], obstacles=["it has snapshots"]),
        ),
    )

    assert moves == {"w1": "b"} and stays == {"w2": "it has snapshots"}


def test_the_given_hosts_are_not_changed():
    hosts = {"a": host(1000)}
    copy_before = copy.deepcopy(hosts)

    evacuation.evacuate(hosts, by_name(moving("x", 10)))

    assert hosts == copy_before


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 60), max_size=12), st.lists(st.integers(10, 120), max_size=4))
def test_no_host_is_ever_overcommitted_and_every_vm_is_accounted_for(sizes, limits):
    hosts = {f"h{n}": host(limit) for n, limit in enumerate(limits)}
    vms = by_name(*[moving(f"vm{n:02}", size) for n, size in enumerate(sizes)])

    targets, stays = evacuation.evacuate(hosts, vms)

    assert {*targets, *stays} == {*vms} and not {*targets} & {*stays}
    for name, info in hosts.items():
        taken_mib = sum(vms[vm].memory_mib for vm, target in targets.items() if target == name)
        assert taken_mib <= info.memory.limit_mib


def test_a_thousand_equal_hosts_each_take_one():
    base = host(64 * 1024)
    vms = told.but(base, vms={f"o{n}": {"vcpus": 2, "memory_mib": 2048} for n in range(20)}).vms
    hosts = {
        f"h{n}": replace(base, vms={f"h{n}-{k}": v for k, v in vms.items()}) for n in range(1000)
    }

    targets, stays = evacuation.evacuate(
        hosts, by_name(*[moving(f"vm{n}", 2048) for n in range(20)])
    )

    assert len(targets) == 20 and not stays
    assert len(set(targets.values())) == 20
