"""Headroom for the death of any one host, compared with an exact solver."""

import random
from collections import Counter

import tightclouds
import told
from saltvirt.core.model import Policy, Requirements
from saltvirt.placement import choose, headroom, many, whatif
from sizes import sizes
from tightclouds import host, moving

HEADROOM = Policy(headroom=True)


def vm(name, memory_mib=10, **options):
    """Return the needs of a VM."""
    return Requirements(name=name, vcpus=1, memory_mib=memory_mib, **options)


def can_lose_any_host(hosts):
    """Return whether any one host may die, by the exact solver; None if that takes too long."""
    results = []
    for dead_host, info in hosts.items():
        remaining_hosts = {
            name: host_info for name, host_info in hosts.items() if name != dead_host
        }
        vms = {
            name: moving(
                name,
                vm.memory_mib,
                vcpus=vm.vcpus,
                affinity=vm.affinity,
                anti_affinity=vm.anti_affinity,
            )
            for name, vm in info.vms.items()
        }
        results.append(
            not vms or bool(remaining_hosts) and tightclouds.Exact(remaining_hosts, vms).feasible()
        )
    return None if None in results and False not in results else all(results)


def some_cloud(draw):
    """Return hosts with VMs, and hardly more room than they need if one host dies."""
    hosts = {f"h{n}": host(draw.choice([30, 40, 60]), 12) for n in range(draw.randint(2, 5))}
    for number in range(draw.randint(1, 10)):
        new_vm = vm(f"v{number}", draw.choice([4, 8, 12]), **_groups(draw))
        fitting = [v.host for v in choose.evaluate(hosts, new_vm) if v.fits]
        if fitting:
            host_name = draw.choice(fitting)
            hosts[host_name] = whatif.with_vm(hosts[host_name], new_vm)
    return hosts


def _groups(draw):
    chance = draw.random()
    if chance < 0.15:
        return {"affinity": (draw.choice("ab"),)}
    return {"anti_affinity": (draw.choice("xy"),)} if chance < 0.3 else {}


@sizes(quick=60, full=3_000)
def test_a_host_is_refused_exactly_if_some_host_could_not_die_any_more(size):
    counts = Counter()
    for seed in range(size):
        draw = random.Random(seed)
        hosts = some_cloud(draw)
        new = vm("new", draw.choice([4, 8, 12]), **_groups(draw))
        for evaluation in choose.evaluate(hosts, new):
            if not evaluation.fits:
                continue
            exact = can_lose_any_host(
                {**hosts, evaluation.host: whatif.with_vm(hosts[evaluation.host], new)}
            )
            reason = headroom.Headroom(hosts).why_not(new, evaluation.host)
            # If there is no headroom before, the VM is refused too.
            assert exact is None or (reason is None) == exact or not can_lose_any_host(hosts), (
                seed,
                evaluation.host,
            )
            counts[reason is None] += 1
    assert min(counts.values()) > size / 4


def test_placed_vms_count_and_a_lost_refuge_is_replaced():
    hosts = {f"h{n}": host(40) for n in range(3)}

    plan = many.plan_many([vm(f"v{n}") for n in range(12)], hosts, policy=HEADROOM)

    assert sorted(Counter(plan.hosts.values()).values()) == [2, 3, 3]
    assert can_lose_any_host(_carry_out(hosts, plan))
    reasons = next(iter(plan.unplaced.values()))
    assert all("headroom: if h" in reason for reason in reasons.values()), reasons


def _carry_out(hosts, plan):
    for name, host_name in plan.hosts.items():
        hosts = {**hosts, host_name: whatif.with_vm(hosts[host_name], vm(name))}
    return hosts


def test_a_cloud_without_headroom_takes_nothing_and_names_the_host_that_must_not_die():
    hosts = {"h1": whatif.with_vm(host(40), vm("old", 40)), "h2": host(30), "h3": host(30)}

    evaluations = {
        evaluation.host: evaluation
        for evaluation in choose.evaluate(hosts, vm("new"), policy=HEADROOM)
    }

    expected = "headroom: if h1 died now, its VMs would not find room elsewhere"
    assert evaluations["h2"].reasons == (expected,)
    assert choose.evaluate(hosts, vm("new"))[0].fits


def test_hosts_of_another_kind_and_in_maintenance_are_no_refuge():
    loaded_host = whatif.with_vm(host(40), vm("old"))

    def fits(other_host):
        return choose.evaluate({"a": loaded_host, "b": other_host}, vm("new"), policy=HEADROOM)[
            -1
        ].fits

    assert not fits(host(40, maintenance=True))
    assert not fits(host(40, archs=["aarch64"]))
    assert choose.evaluate({"a": loaded_host, "b": host(40)}, vm("new"), policy=HEADROOM)[0].fits


def test_racks_are_kept_apart_after_a_death_too():
    group = {"anti_affinity": ("db@rack",)}
    hosts = {name: host(100, tags={"rack": rack}) for name, rack in zip("abc", "rss", strict=True)}
    hosts["a"] = whatif.with_vm(hosts["a"], vm("db1", **group))

    def reasons_by_host(hosts_to_check):
        evaluations = choose.evaluate(hosts_to_check, vm("db2", **group), policy=HEADROOM)
        return {evaluation.host: "; ".join(evaluation.reasons) for evaluation in evaluations}

    assert "headroom: if a died then" in reasons_by_host(hosts)["b"]
    more_hosts = {**hosts, "d": host(100, tags={"rack": "t"})}
    assert reasons_by_host(more_hosts)["b"] == "" and reasons_by_host(more_hosts)["c"] == ""


def test_one_of_several_vms_counts_for_the_others():
    hosts = {"a": told.but(host(20)), "b": host(20)}

    plan = many.plan_many([vm("p"), vm("q"), vm("r")], hosts, policy=HEADROOM)

    assert len(plan.hosts) == 2 and len(set(plan.hosts.values())) == 2
