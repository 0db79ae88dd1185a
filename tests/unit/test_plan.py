"""Where many VMs go at once: pure, so whole clouds are tried."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument
from saltvirt.model import Move
from saltvirt.placement import balance, fit, moves, plan
from saltvirt.spec import move

FLEETS = Path(__file__).resolve().parents[1] / "data" / "fleets"


def fleet():
    """Return a cloud of three hosts."""
    return json.loads((FLEETS / "three.json").read_text())


def host(memory_mib, **given):
    """Return an empty host with this much memory and all else in plenty."""
    out = copy.deepcopy(next(iter(fleet().values())))
    out.update(vms={}, building=[], maintenance=False, **given)
    out["memory"].update(limit_mib=memory_mib, committed_mib=0)
    out["cpu"].update(vcpus_limit=1000, vcpus_committed=0)
    out["storage"].update(limit_mib=10**7, committed_mib=0)
    return out


def about(name, memory_mib, **given):
    """Return what a host says of a VM that moves."""
    usual = {"name": name, "state": "running", "vcpus": 1, "memory_mib": memory_mib, "disks": [],
             "images": "/srv", "affinity": [], "anti_affinity": [], "domain_type": "qemu",
             "arch": "x86_64", "machine": "pc", "bridges": [], "networks": [], "links": [],
             "obstacles": [], "files": [], "stay": False}  # fmt: skip
    return {**usual, **given}


def named(*abouts):
    """Return facts by their VM's name."""
    return {one["name"]: one for one in abouts}


def test_big_vms_go_first_and_each_counts_for_the_next():
    hosts = {"a": host(100), "b": host(60)}

    there, stays = plan.evacuate(hosts, named(about("small", 40), about("big", 90),
                                              about("mid", 50)))  # fmt: skip

    assert list(there) == ["big", "mid"] and there == {"big": "a", "mid": "b"}
    assert "memory wanted" in stays["small"] and "a: " in stays["small"]


def test_what_cannot_move_stays_with_its_reason():
    there, stays = plan.evacuate({"a": host(1000)}, named(
        about("pinned", 10, obstacles=["it has a device of this host"]), about("free", 10)))

    assert there == {"free": "a"} and stays == {"pinned": "it has a device of this host"}


def test_groups_stay_together_and_apart():
    hosts = {name: host(1000) for name in "abc"}
    there, stays = plan.evacuate(hosts, named(
        about("w1", 10, affinity=["web"]), about("w2", 20, affinity=["web"]),
        about("d1", 30, anti_affinity=["db"]), about("d2", 30, anti_affinity=["db"])))

    assert there["w1"] == there["w2"] and there["d1"] != there["d2"] and not stays


def test_the_hosts_that_were_given_are_not_changed():
    hosts = {"a": host(1000)}
    before = copy.deepcopy(hosts)

    plan.evacuate(hosts, named(about("x", 10)))

    assert hosts == before


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 60), max_size=12), st.lists(st.integers(10, 120), max_size=4))
def test_no_host_is_ever_overcommitted_and_every_vm_is_accounted_for(vms, limits):
    hosts = {f"h{n}": host(limit) for n, limit in enumerate(limits)}
    abouts = named(*[about(f"vm{n:02}", size) for n, size in enumerate(vms)])

    there, stays = plan.evacuate(hosts, abouts)

    assert {*there, *stays} == {*abouts} and not {*there} & {*stays}
    for name, one in hosts.items():
        taken = sum(abouts[vm]["memory_mib"] for vm, to in there.items() if to == name)
        assert taken <= one["memory"]["limit_mib"]


def test_one_more_vm_leaves_that_much_less():
    before = host(1000)
    need = moves.need(about("x", 100, vcpus=3, disks=[
        {"how": "copy", "virtual_bytes": 2**30}, {"how": "shared"}]))
    after = plan.with_vm(before, need)

    left, had = fit.free(after), fit.free(before)
    assert [had[k] - left[k] for k in ("vcpus", "memory_mib", "disk_mib")] == [3, 100, 1024]


def test_a_thousand_equal_hosts_each_take_one():
    base = host(64 * 1024)
    vms = {f"o{n}": {"state": "running", "vcpus": 2, "memory_mib": 2048, "affinity": [],
                     "anti_affinity": []} for n in range(20)}  # fmt: skip
    hosts = {f"h{n}": {**base, "vms": {f"h{n}-{k}": v for k, v in vms.items()}}
             for n in range(1000)}  # fmt: skip

    there, stays = plan.evacuate(hosts, named(*[about(f"vm{n}", 2048) for n in range(20)]))

    assert len(there) == 20 and not stays
    assert len(set(there.values())) == 20


@pytest.mark.parametrize(
    ("given_", "why"),
    [
        ({"max_bandwith": 1}, "did you mean 'max_bandwidth'"),
        ({"max_bandwidth": 0}, "max_bandwidth: 0 is out of range"),
        ({"max_downtime": "soon"}, "is not a whole number"),
        ({"live": "yes"}, "neither True nor False"),
        ({"copy_storage": "some"}, "'some'; all or incremental"),
        ({"comp_methods": "zip"}, "of mt and xbzrle"),
        ({"password": "x"}, "by their certificates"),
    ],
)
def test_a_move_with_a_bad_argument_is_refused(given_, why):
    with pytest.raises(BadArgument, match=why):
        move(HostSettings(), given_)


def test_the_old_keywords_of_a_move_mean_what_they_did():
    made = move(HostSettings(tunnel=True), {"copy_storage": "inc", "comp_methods": "mt,xbzrle",
                                            "compressed": True, "postcopy_after": 3})

    assert made == Move(copy_storage="incremental", comp_methods=("mt", "xbzrle"), tunnel=True,
                        compressed=True, postcopy=True, postcopy_after=3)  # fmt: skip


def busy(**vms):
    """Return the load of a host of 10 CPUs: ``{name: CPUs used}``."""
    return {"cpus": 10, "memory_mib": 100000,
            "vms": {name: {"cpu": cpu, "memory_mib": 0} for name, cpu in vms.items()}}  # fmt: skip


def lopsided():
    """Return hosts, loads and VMs of a cloud in which one host does it all."""
    loads = {"a": busy(v1=3, v2=2, v3=2, v4=1), "b": busy(), "c": busy()}
    hosts = {name: host(100000) for name in loads}
    abouts = named(*[about(name, 100) for name in loads["a"]["vms"]])
    for name, one in abouts.items():
        hosts["a"] = plan.with_vm(hosts["a"], moves.need(one))
        assert name in hosts["a"]["vms"]
    return hosts, loads, abouts


def shares(loads, steps):
    """Return each host's CPUs in use after the steps."""
    out = {name: sum(vm["cpu"] for vm in one["vms"].values()) for name, one in loads.items()}
    for step in steps:
        used = loads[step.source]["vms"][step.name]["cpu"]
        out[step.source] -= used
        out[step.target] += used
    return out


def test_a_lopsided_cloud_is_evened_out_with_few_moves():
    hosts, loads, abouts = lopsided()

    steps = balance.rebalance(hosts, loads, abouts, max_moves=9, threshold=0.01)

    assert sorted(shares(loads, steps).values()) == [2, 3, 3]
    assert len(steps) <= 3 and all(step.gain > 0.01 for step in steps)
    assert steps == balance.rebalance(hosts, loads, abouts, max_moves=9, threshold=0.01)


def test_no_more_moves_are_made_than_asked_for_and_none_that_gains_too_little():
    hosts, loads, abouts = lopsided()

    assert len(balance.rebalance(hosts, loads, abouts, max_moves=1, threshold=0.01)) == 1
    assert balance.rebalance(hosts, loads, abouts, max_moves=9, threshold=0.9) == []
    even = {name: busy() for name in loads}
    assert balance.rebalance(hosts, even, abouts, max_moves=9, threshold=0.0) == []


def test_what_is_tagged_or_cannot_move_stays_and_maintenance_is_honoured():
    hosts, loads, abouts = lopsided()
    abouts["v1"]["stay"] = True
    abouts["v2"]["obstacles"] = ["it has a device of this host"]
    hosts["b"]["maintenance"] = True

    steps = balance.rebalance(hosts, loads, abouts, max_moves=9, threshold=0.01)

    assert {step.name for step in steps} <= {"v3", "v4"}
    assert {step.target for step in steps} == {"c"}


def test_a_host_that_has_refused_a_vm_is_not_planned_for_it_again():
    hosts, loads, abouts = lopsided()
    first = balance.rebalance(hosts, loads, abouts, max_moves=1, threshold=0.01)[0]
    refused = {first.name: {"b": ["its CPU does not suffice"], "c": ["the same"]}}

    steps = balance.rebalance(hosts, loads, abouts, max_moves=9, threshold=0.01, refused=refused)

    assert steps and first.name not in {step.name for step in steps}


def test_a_move_that_costs_more_than_it_gains_is_not_made():
    hosts, loads, abouts = lopsided()
    for one in abouts.values():
        one["memory_mib"] = 1024 * 2000
    for name in hosts:
        hosts[name]["memory"]["limit_mib"] = 10**9

    assert balance.rebalance(hosts, loads, abouts, max_moves=9, threshold=0.0) == []


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=5), min_size=1, max_size=5))
def test_every_step_evens_out_and_none_is_taken_back(cpus):
    loads = {f"h{n}": busy(**{f"v{n}{k}": cpu for k, cpu in enumerate(row)})
             for n, row in enumerate(cpus)}  # fmt: skip
    hosts = {name: host(100000) for name in loads}
    abouts = named(*[about(vm, 10) for one in loads.values() for vm in one["vms"]])

    steps = balance.rebalance(hosts, loads, abouts, max_moves=20, threshold=0.001)

    assert len({step.name for step in steps}) == len(steps)
    before, used = balance.spread(loads), shares(loads, steps)
    after = balance.spread({name: busy(all=cpu) for name, cpu in used.items()})
    assert after <= before
