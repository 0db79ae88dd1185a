"""Many VMs in one plan: the laws of placement, and the same choice as by asking all hosts."""

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
EVERY = st.sampled_from(
    [*somefleets.POLICIES, *(replace(one, headroom=True) for one in somefleets.POLICIES[:2])]
)


def cloud(seed):
    """Return a random fleet and requests."""
    draw = random.Random(seed)
    return somefleets.hosts(draw), somefleets.requests(draw)


@settings(max_examples=80, deadline=None)
@given(SEEDS, WEIGHTS, EVERY)
@pytest.mark.slow
def test_a_plan_is_what_asking_all_hosts_for_each_vm_gives(seed, weights, policy):
    hosts, requests = cloud(seed)
    ordered = many.order(requests, hosts, weights, policy)

    plan = many.plan_many(requests, hosts, weights=weights, policy=policy)

    assert plan.hosts == somefleets.plainly(ordered, hosts, weights, policy)[1]
    assert list(plan.hosts) == [one.name for one in ordered if one.name in plan.hosts]


@settings(max_examples=60, deadline=None)
@given(SEEDS, EVERY)
def test_no_plan_overcommits_or_breaks_a_rule_and_each_rejection_is_explained(seed, policy):
    hosts, requests = cloud(seed)

    plan = many.plan_many(requests, hosts, policy=policy)

    named_ = {one.name: one for one in requests}
    assert {*plan.hosts, *plan.unplaced} == {*named_}
    for name, info in hosts.items():
        check_room(info, [named_[vm] for vm, at in plan.hosts.items() if at == name])
    for group in somefleets.APART:
        places = Counter(place for _vm, place in in_group(hosts, plan, named_, group))
        for vm, place in in_group(hosts, plan, named_, group):
            assert vm not in plan.hosts or places[place] == 1, (group, vm)
    for reasons in plan.unplaced.values():
        assert reasons.keys() == hosts.keys() and all(reasons.values())


def check_room(info, new):
    """Check that a host has room for new VMs, and is not in maintenance if there are any."""
    taken = [sum(each) for each in zip(*(fit.needed(info, vm) for vm in new), strict=True)]
    room = fit.free(info).values()
    assert all(need <= left for need, left in zip(taken, room, strict=False)), taken
    assert not new or not info.maintenance
    for stock, left in fit.stocks_left(info).items():
        need = sum(dict(vm.stocks).get(stock, 0) for vm in new)
        assert not need or need <= left, stock


def in_group(hosts, plan, named_, group):
    """Yield each VM of an anti-affinity group, old and new, and its host or rack."""
    tag = groups.tag_of(group)
    old = [
        (name, at)
        for at, info in hosts.items()
        for name, vm in groups.members(info).items()
        if group in vm.anti_affinity
    ]
    new = [(name, at) for name, at in plan.hosts.items() if group in named_[name].anti_affinity]
    for name, at in (*old, *new):
        yield name, groups.place(at, hosts[at].tags, tag) if tag else at


@settings(max_examples=30, deadline=None)
@given(SEEDS, EVERY)
def test_a_plan_hangs_neither_on_the_order_of_hosts_nor_on_that_of_requests(seed, policy):
    hosts, requests = cloud(seed)
    plan = many.plan_many(requests, hosts, policy=policy)

    turned = many.plan_many(requests[::-1], dict(reversed(hosts.items())), policy=policy)

    assert turned == plan


@settings(max_examples=40, deadline=None)
@given(SEEDS, EVERY, st.sampled_from([0, 40, 100]))
def test_one_empty_host_more_never_makes_a_request_infeasible(seed, policy, memory_mib):
    hosts, requests = cloud(seed)
    more = {**hosts, "more": host(memory_mib, 8, 90, tags={"rack": "r"})}

    for required in requests:
        if choose.evaluate(hosts, required, policy=policy)[0].fits:
            assert choose.evaluate(more, required, policy=policy)[0].fits


def named(*names, **what):
    """Return requests of VMs that are alike."""
    usual = {"vcpus": 1, "memory_mib": 10}
    return [Requirements(name=name, **{**usual, **what}) for name in names]


def test_all_or_nothing_places_none_if_one_finds_no_place():
    hosts = {"h1": host(25), "h2": host(5)}
    three = named("a", "b", "c")

    some = many.plan_many(three, hosts)
    none = many.plan_many(three, hosts, all_or_nothing=True)

    assert some.hosts == {"a": "h1", "b": "h1"}
    assert some.unplaced["c"]["h1"] == "10 MiB of memory wanted, 5 MiB free"
    assert none.hosts == {} and none.unplaced.keys() == {"a", "b", "c"}
    assert none.unplaced["a"]["h1"] == "all or nothing: no place for c"
    assert many.plan_many(three[:2], hosts, all_or_nothing=True).hosts == some.hosts


def test_a_name_is_placed_once_in_the_whole_cloud():
    hosts = {"h1": told.but(host(25), vms={"a": {}}), "h2": host(25)}

    plan = many.plan_many(named("a", "b"), hosts)

    assert plan.hosts == {"b": "h1"}
    assert plan.unplaced["a"]["h2"] == "VM 'a' is on h1 already, or on its way there"
    with pytest.raises(BadArgument, match="'b' is asked for twice"):
        many.plan_many(named("b", "b"), hosts)


def test_packing_fills_one_host_after_the_other_and_spreading_all():
    hosts = {f"h{n}": host(40) for n in range(3)}
    six = named(*"abcdef")

    packed = many.plan_many(six, hosts, policy=Policy(placement="pack"))
    spread = many.plan_many(six, hosts)

    assert Counter(packed.hosts.values()) == {"h0": 4, "h1": 2}
    assert Counter(spread.hosts.values()) == {"h0": 2, "h1": 2, "h2": 2}


def test_vms_are_spread_over_racks_by_their_group_and_else_by_all():
    hosts = {f"h{n}": host(100, tags={"rack": "r" if n < 3 else "s"}) for n in range(4)}
    hosts["h3"] = told.but(hosts["h3"], memory={"limit_mib": 60})
    over = Policy(spread_over="rack")

    plain = many.plan_many(named(*"abcd"), hosts, policy=over)
    group = many.plan_many(named("p", "q", anti_affinity=("g",)), hosts, policy=over)

    assert Counter(hosts[at].tags["rack"] for at in plain.hosts.values()) == {"r": 2, "s": 2}
    assert {hosts[at].tags["rack"] for at in group.hosts.values()} == {"r", "s"}
    assert set(many.plan_many(named(*"abc"), hosts).hosts.values()) == {"h0", "h1", "h2"}


def test_a_group_that_is_called_after_a_tag_has_one_vm_in_each_rack():
    hosts = {f"h{n}": host(100, tags={"rack": "rs"[n // 2]}) for n in range(4)}

    plan = many.plan_many(named(*"abc", anti_affinity=("db@rack",)), hosts)

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
def test_packed_hosts_are_hardly_more_than_there_must_be(kind, jitter_mib, size):
    requests = sizemix.requests(size)
    hosts = sizemix.hosts(size // 10, kind, jitter_mib)
    needs = [(one.vcpus, one.memory_mib, one.disk_mib) for one in requests]
    begin = time.process_time()

    plan = many.plan_many(requests, hosts, policy=Policy(placement="pack"))

    took = time.process_time() - begin
    least = bounds.fewest_hosts(needs, [*kind.values()])
    used = len(set(plan.hosts.values()))
    print(f"{size} VMs on {used} hosts, at least {least}, in {took:.2f} s")
    assert not plan.unplaced and least <= used <= 1.03 * least
    assert took < 10 * size / 10_000


@sizes(quick=1_000, full=10_000)
def test_vms_that_are_all_different_are_planned_as_fast(size):
    draw = random.Random(3)
    requests = [
        replace(one, vcpus=draw.randint(1, 8), memory_mib=draw.randint(512, 40_000), disk_mib=n)
        for n, one in enumerate(sizemix.requests(size))
    ]
    hosts = sizemix.hosts(size // 10, sizemix.BALANCED, 3000)
    for placement in ("spread", "pack"):
        begin = time.process_time()
        plan = many.plan_many(requests, hosts, policy=Policy(placement=placement))
        assert len(plan.hosts) + len(plan.unplaced) == size
        assert time.process_time() - begin < 10 * size / 10_000
