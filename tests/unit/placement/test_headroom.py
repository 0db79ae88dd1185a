"""Headroom for any one host that may die, beside an exact solver."""

import random
from collections import Counter

import tightclouds
import told
from saltvirt.core.model import Policy, Requirements
from saltvirt.placement import choose, headroom, many, whatif
from sizes import sizes
from tightclouds import host, moving

HEADROOM = Policy(headroom=True)


def vm(name, memory_mib=10, **what):
    """Return what a VM needs."""
    return Requirements(name=name, vcpus=1, memory_mib=memory_mib, **what)


def survives(hosts):
    """Return whether any one host may die, by the exact solver; None if that took too long."""
    found = []
    for dead, info in hosts.items():
        others = {name: one for name, one in hosts.items() if name != dead}
        vms = {
            name: moving(
                name,
                one.memory_mib,
                vcpus=one.vcpus,
                affinity=one.affinity,
                anti_affinity=one.anti_affinity,
            )
            for name, one in info.vms.items()
        }
        found.append(not vms or bool(others) and tightclouds.Exact(others, vms).feasible())
    return None if None in found and False not in found else all(found)


def some_cloud(draw):
    """Return hosts with VMs, and hardly more room than they need if one host dies."""
    hosts = {f"h{n}": host(draw.choice([30, 40, 60]), 12) for n in range(draw.randint(2, 5))}
    for number in range(draw.randint(1, 10)):
        one = vm(f"v{number}", draw.choice([4, 8, 12]), **_groups(draw))
        fitting = [v.host for v in choose.evaluate(hosts, one) if v.fits]
        if fitting:
            at = draw.choice(fitting)
            hosts[at] = whatif.with_vm(hosts[at], one)
    return hosts


def _groups(draw):
    chance = draw.random()
    if chance < 0.15:
        return {"affinity": (draw.choice("ab"),)}
    return {"anti_affinity": (draw.choice("xy"),)} if chance < 0.3 else {}


@sizes(quick=60, full=3_000)
def test_a_host_is_refused_exactly_where_one_could_not_die_any_more(size):
    said = Counter()
    for seed in range(size):
        draw = random.Random(seed)
        hosts = some_cloud(draw)
        new = vm("new", draw.choice([4, 8, 12]), **_groups(draw))
        for one in choose.evaluate(hosts, new):
            if not one.fits:
                continue
            exact = survives({**hosts, one.host: whatif.with_vm(hosts[one.host], new)})
            why = headroom.Headroom(hosts).why_not(new, one.host)
            # Where it cannot be kept before, it is refused too.
            assert exact is None or (why is None) == exact or not survives(hosts), (seed, one.host)
            said[why is None] += 1
    assert min(said.values()) > size / 4


def test_what_was_put_counts_and_the_way_that_broke_is_found_anew():
    hosts = {f"h{n}": host(40) for n in range(3)}

    plan = many.plan_many([vm(f"v{n}") for n in range(12)], hosts, policy=HEADROOM)

    assert sorted(Counter(plan.hosts.values()).values()) == [2, 3, 3]
    assert survives(_carried(hosts, plan))
    reasons = next(iter(plan.unplaced.values()))
    assert all("headroom: if h" in why for why in reasons.values()), reasons


def _carried(hosts, plan):
    for name, at in plan.hosts.items():
        hosts = {**hosts, at: whatif.with_vm(hosts[at], vm(name))}
    return hosts


def test_a_cloud_without_headroom_takes_nothing_and_says_whose_death_it_would_not_survive():
    hosts = {"h1": whatif.with_vm(host(40), vm("old", 40)), "h2": host(30), "h3": host(30)}

    found = {one.host: one for one in choose.evaluate(hosts, vm("new"), policy=HEADROOM)}

    why = "headroom: if h1 died now, its VMs would not find room elsewhere"
    assert found["h2"].reasons == (why,)
    assert choose.evaluate(hosts, vm("new"))[0].fits


def test_hosts_of_another_kind_and_in_maintenance_are_no_refuge():
    here = whatif.with_vm(host(40), vm("old"))

    def fits(other):
        return choose.evaluate({"a": here, "b": other}, vm("new"), policy=HEADROOM)[-1].fits

    assert not fits(host(40, maintenance=True))
    assert not fits(host(40, archs=["aarch64"]))
    assert choose.evaluate({"a": here, "b": host(40)}, vm("new"), policy=HEADROOM)[0].fits


def test_racks_are_kept_apart_after_a_death_too():
    apart = {"anti_affinity": ("db@rack",)}
    hosts = {name: host(100, tags={"rack": rack}) for name, rack in zip("abc", "rss", strict=True)}
    hosts["a"] = whatif.with_vm(hosts["a"], vm("db1", **apart))

    def why(two):
        found = choose.evaluate(two, vm("db2", **apart), policy=HEADROOM)
        return {one.host: "; ".join(one.reasons) for one in found}

    assert "headroom: if a died then" in why(hosts)["b"]
    third = {**hosts, "d": host(100, tags={"rack": "t"})}
    assert why(third)["b"] == "" and why(third)["c"] == ""


def test_one_of_several_vms_counts_for_the_others():
    hosts = {"a": told.but(host(20)), "b": host(20)}

    plan = many.plan_many([vm("p"), vm("q"), vm("r")], hosts, policy=HEADROOM)

    assert len(plan.hosts) == 2 and len(set(plan.hosts.values())) == 2
