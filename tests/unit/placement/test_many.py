"""Many VMs in one plan: the laws of placement, and the same choice as among all hosts."""

import random
import time
from collections import Counter
from dataclasses import replace

import bounds
import pytest
import sizemix
import somefleets
import told
from hypothesis import given, settings
from hypothesis import strategies as st
from saltvirt.core.errors import BadArgument
from saltvirt.core.model import Policy, Requirements
from saltvirt.placement import choose, fit, groups, many
from sizes import sizes
from tightclouds import host

SEEDS = st.integers(0, 10**9)
WEIGHTS = st.sampled_from([None, {"cpu": 0}, {"memory": 0, "cpu": 0, "disk": 0}, {"disk": 3.3}])
EVERY_POLICY = st.sampled_from(
    [*somefleets.POLICIES, *(replace(policy, headroom=True) for policy in somefleets.POLICIES[:2])]
)


def cloud(seed):
    """Return a random fleet and requests."""
    draw = random.Random(seed)
    return somefleets.hosts(draw), somefleets.requests(draw)


@settings(max_examples=80, deadline=None)
@given(SEEDS, WEIGHTS, EVERY_POLICY)
@pytest.mark.slow
def test_a_plan_is_the_same_as_a_choice_for_each_vm_among_all_hosts(seed, weights, policy):
    hosts, requests = cloud(seed)
    ordered = many.order(requests, hosts, weights, policy)

    plan = many.plan_many(requests, hosts, weights=weights, policy=policy)

    assert plan.hosts == somefleets.plainly(ordered, hosts, weights, policy)[1]
    assert list(plan.hosts) == [
        required.name for required in ordered if required.name in plan.hosts
    ]


@settings(max_examples=60, deadline=None)
@given(SEEDS, EVERY_POLICY)
def test_no_plan_overcommits_or_breaks_a_rule_and_each_rejection_is_explained(seed, policy):
    hosts, requests = cloud(seed)

    plan = many.plan_many(requests, hosts, policy=policy)

    requests_by_name = {required.name: required for required in requests}
    assert {*plan.hosts, *plan.unplaced} == {*requests_by_name}
    for name, info in hosts.items():
        check_room(
            info,
            [requests_by_name[vm] for vm, host_name in plan.hosts.items() if host_name == name],
        )
    for group in somefleets.APART:
        places = Counter(
            host_or_rack for _vm, host_or_rack in in_group(hosts, plan, requests_by_name, group)
        )
        for vm, host_or_rack in in_group(hosts, plan, requests_by_name, group):
            assert vm not in plan.hosts or places[host_or_rack] == 1, (group, vm)
    for reasons in plan.unplaced.values():
        assert reasons.keys() == hosts.keys() and all(reasons.values())


def check_room(info, new):
    """Check that a host has room for new VMs, and that a host in maintenance has none."""
    needed_amounts = [
        sum(amounts) for amounts in zip(*(fit.needed(info, vm) for vm in new), strict=True)
    ]
    room = fit.free(info).values()
    assert all(
        needed_amount <= free_amount
        for needed_amount, free_amount in zip(needed_amounts, room, strict=False)
    ), needed_amounts
    assert not new or not info.maintenance
    for stock, free_amount in fit.stocks_left(info).items():
        needed_amount = sum(dict(vm.stocks).get(stock, 0) for vm in new)
        assert not needed_amount or needed_amount <= free_amount, stock


def in_group(hosts, plan, requests_by_name, group):
    """Yield each VM of an anti-affinity group, old and new, and its host or rack."""
    tag = groups.tag_of(group)
    old = [
        (name, host_name)
        for host_name, info in hosts.items()
        for name, vm in groups.members(info).items()
        if group in vm.anti_affinity
    ]
    new = [
        (name, host_name)
        for name, host_name in plan.hosts.items()
        if group in requests_by_name[name].anti_affinity
    ]
    for name, host_name in (*old, *new):
        yield name, groups.place(host_name, hosts[host_name].tags, tag) if tag else host_name


@settings(max_examples=30, deadline=None)
@given(SEEDS, EVERY_POLICY)
def test_a_plan_depends_neither_on_the_order_of_hosts_nor_on_that_of_requests(seed, policy):
    hosts, requests = cloud(seed)
    plan = many.plan_many(requests, hosts, policy=policy)

    reversed_plan = many.plan_many(requests[::-1], dict(reversed(hosts.items())), policy=policy)

    assert reversed_plan == plan


@settings(max_examples=40, deadline=None)
@given(SEEDS, EVERY_POLICY, st.sampled_from([0, 40, 100]))
def test_one_more_empty_host_never_makes_a_request_infeasible(seed, policy, memory_mib):
    hosts, requests = cloud(seed)
    more_hosts = {**hosts, "more": host(memory_mib, 8, 90, tags={"rack": "r"})}

    for required in requests:
        if choose.evaluate(hosts, required, policy=policy)[0].fits:
            assert choose.evaluate(more_hosts, required, policy=policy)[0].fits


def requests_of(*names, **options):
    """Return requests of VMs that are alike."""
    defaults = {"vcpus": 1, "memory_mib": 10}
    return [Requirements(name=name, **{**defaults, **options}) for name in names]


def test_all_or_nothing_places_none_if_one_finds_no_place():
    hosts = {"h1": host(25), "h2": host(5)}
    three_requests = requests_of("a", "b", "c")

    partial_plan = many.plan_many(three_requests, hosts)
    empty_plan = many.plan_many(three_requests, hosts, all_or_nothing=True)

    assert partial_plan.hosts == {"a": "h1", "b": "h1"}
    assert partial_plan.unplaced["c"]["h1"] == "10 MiB of memory wanted, 5 MiB free"
    assert empty_plan.hosts == {} and empty_plan.unplaced.keys() == {"a", "b", "c"}
    assert empty_plan.unplaced["a"]["h1"] == "all or nothing: no place for c"
    assert (
        many.plan_many(three_requests[:2], hosts, all_or_nothing=True).hosts == partial_plan.hosts
    )


def test_a_name_is_placed_once_in_the_whole_cloud():
    hosts = {"h1": told.but(host(25), vms={"a": {}}), "h2": host(25)}

    plan = many.plan_many(requests_of("a", "b"), hosts)

    assert plan.hosts == {"b": "h1"}
    assert plan.unplaced["a"]["h2"] == "VM 'a' is on h1 already, or on its way there"
    with pytest.raises(BadArgument, match="'b' is asked for twice"):
        many.plan_many(requests_of("b", "b"), hosts)


def test_packing_fills_one_host_after_the_other_and_spreading_all():
    hosts = {f"h{n}": host(40) for n in range(3)}
    six_requests = requests_of(*"abcdef")

    packed = many.plan_many(six_requests, hosts, policy=Policy(placement="pack"))
    spread = many.plan_many(six_requests, hosts)

    assert Counter(packed.hosts.values()) == {"h0": 4, "h1": 2}
    assert Counter(spread.hosts.values()) == {"h0": 2, "h1": 2, "h2": 2}


def test_vms_are_spread_over_racks_within_their_group_and_otherwise_among_all():
    hosts = {f"h{n}": host(100, tags={"rack": "r" if n < 3 else "s"}) for n in range(4)}
    hosts["h3"] = told.but(hosts["h3"], memory={"limit_mib": 60})
    policy = Policy(spread_over="rack")

    plan_without_group = many.plan_many(requests_of(*"abcd"), hosts, policy=policy)
    plan_with_group = many.plan_many(
        requests_of("p", "q", anti_affinity=("g",)), hosts, policy=policy
    )

    assert Counter(
        hosts[host_name].tags["rack"] for host_name in plan_without_group.hosts.values()
    ) == {"r": 2, "s": 2}
    assert {hosts[host_name].tags["rack"] for host_name in plan_with_group.hosts.values()} == {
        "r",
        "s",
    }
    assert set(many.plan_many(requests_of(*"abc"), hosts).hosts.values()) == {"h0", "h1", "h2"}


def test_a_group_that_is_called_after_a_tag_has_one_vm_in_each_rack():
    hosts = {f"h{n}": host(100, tags={"rack": "rs"[n // 2]}) for n in range(4)}

    plan = many.plan_many(requests_of(*"abc", anti_affinity=("db@rack",)), hosts)

    assert plan.hosts == {"a": "h0", "b": "h2"}
    assert plan.unplaced["c"] == {
        "h0": "a of the anti-affinity group db@rack is there",
        "h1": "a of the anti-affinity group db@rack is in rack r",
        "h2": "b of the anti-affinity group db@rack is there",
        "h3": "b of the anti-affinity group db@rack is in rack s",
    }


@sizes(quick=2_000, full=10_000)
@pytest.mark.parametrize("jitter_mib", [0, 3000])
@pytest.mark.parametrize("kind", [sizemix.BALANCED, sizemix.LACKING], ids=["balanced", "lacking"])
def test_packing_uses_few_more_hosts_than_the_lower_bound(kind, jitter_mib, size):
    requests = sizemix.requests(size)
    hosts = sizemix.hosts(size // 10, kind, jitter_mib)
    needs = [(required.vcpus, required.memory_mib, required.disk_mib) for required in requests]
    started_s = time.process_time()

    plan = many.plan_many(requests, hosts, policy=Policy(placement="pack"))

    duration_s = time.process_time() - started_s
    lower_bound = bounds.fewest_hosts(needs, [*kind.values()])
    used_count = len(set(plan.hosts.values()))
    print(f"{size} VMs on {used_count} hosts, at least {lower_bound}, in {duration_s:.2f} s")
    assert not plan.unplaced and lower_bound <= used_count <= 1.03 * lower_bound
    assert duration_s < 10 * size / 10_000


@sizes(quick=1_000, full=10_000)
def test_requests_that_all_differ_are_planned_as_fast(size):
    draw = random.Random(3)
    requests = [
        replace(
            required, vcpus=draw.randint(1, 8), memory_mib=draw.randint(512, 40_000), disk_mib=n
        )
        for n, required in enumerate(sizemix.requests(size))
    ]
    hosts = sizemix.hosts(size // 10, sizemix.BALANCED, 3000)
    for placement in ("spread", "pack"):
        started_s = time.process_time()
        plan = many.plan_many(requests, hosts, policy=Policy(placement=placement))
        assert len(plan.hosts) + len(plan.unplaced) == size
        assert time.process_time() - started_s < 10 * size / 10_000
