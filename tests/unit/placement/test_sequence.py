"""Concurrent moves of a plan: no host is overcommitted at any time."""

import itertools
import random

import pytest
import told
from hypothesis import given, settings
from hypothesis import strategies as st
from saltvirt.placement import choose, fit, groups, whatif
from saltvirt.placement.sequence import Sequence
from tightclouds import host, moving

RACKS = ("r1", "r2")


def _cloud(draw):
    """Return hosts with hardly any room, in racks, and VMs on them with groups."""
    hosts = {
        f"h{n}": host(draw.choice([16, 24, 32]), tags={"rack": draw.choice(RACKS)})
        for n in range(draw.randint(3, 6))
    }
    vms, host_by_vm = {}, {}
    for number in range(draw.randint(3, 16)):
        groups_of_vm = {"affinity": ["a"]} if draw.random() < 0.2 else {}
        if draw.random() < 0.4:
            groups_of_vm = {"anti_affinity": [draw.choice(["x", "y@rack"])]}
        vm = moving(f"v{number}", draw.choice([4, 8, 12]), **groups_of_vm)
        fitting = [
            evaluation.host
            for evaluation in choose.evaluate(hosts, whatif.needs_of_move(vm))
            if evaluation.fits
        ]
        if fitting:
            host_name = draw.choice(fitting)
            hosts[host_name] = whatif.with_vm(hosts[host_name], whatif.needs_of_move(vm))
            vms[vm.name], host_by_vm[vm.name] = whatif.needs_of_move(vm), host_name
    return hosts, vms, host_by_vm


def _plan(draw, hosts, vms, host_by_vm):
    """Return moves that can be made one after the other; many of them need an earlier one."""
    moves = {}
    for name in draw.sample(list(vms), len(vms)) * 2:
        if name in moves:
            continue
        # The VM's own host is evaluated too: no VM leaves others of its affinity group behind.
        fitting = [
            evaluation.host for evaluation in choose.evaluate(hosts, vms[name]) if evaluation.fits
        ]
        if fitting:
            source, target = host_by_vm[name], draw.choice(fitting)
            moves[name] = (source, target)
            hosts = {
                **hosts,
                source: whatif.without_vm(hosts[source], vms[name]),
                target: whatif.with_vm(hosts[target], vms[name]),
            }
    return moves


class _Hosts:
    """The hosts of each VM: a VM on its way is on both."""

    def __init__(self, hosts, vms, host_by_vm):
        self.hosts, self.vms = hosts, vms
        self.on = {name: {host_name} for name, host_name in host_by_vm.items()}

    def check(self):
        """Check each host and each group as they are now."""
        for name, info in self.hosts.items():
            vms_on_host = [
                self.vms[vm] for vm, hosts_of_vm in self.on.items() if name in hosts_of_vm
            ]
            assert sum(vm.memory_mib for vm in vms_on_host) <= info.memory.limit_mib
            anti_groups = [group for vm in vms_on_host for group in vm.anti_affinity]
            assert len(anti_groups) == len(set(anti_groups)), f"{name} has two of a group"
        affine_hosts = [hosts_of_vm for vm, hosts_of_vm in self.on.items() if self.vms[vm].affinity]
        assert not affine_hosts or set.intersection(*affine_hosts), "an affinity group is parted"
        racks = {}
        for vm, hosts_of_vm in self.on.items():
            for group in filter(groups.tag_of, self.vms[vm].anti_affinity):
                for host_name in hosts_of_vm:
                    rack = (group, self.hosts[host_name].tags["rack"])
                    assert racks.setdefault(rack, vm) == vm, f"{rack} has two"

    def begin(self, name, target):
        self.on[name] = self.on[name] | {target}

    def end(self, name, host_name):
        self.on[name] = {host_name}


def _play(draw, is_failing):
    """Make moves in a random permitted order; return the moves made, and those never begun."""
    hosts, vms, host_by_vm = _cloud(draw)
    moves = _plan(draw, hosts, vms, host_by_vm)
    world, sequence = _Hosts(hosts, vms, host_by_vm), Sequence(hosts, vms, moves)
    world.check()
    waiting, running, done_moves = list(moves), [], []
    most_at_once = 0
    while True:
        ready = list(sequence.ready(waiting))
        if ready and (not running or draw.random() < 0.6):
            # Some are passed over, as moves are that wait for a slot on a host.
            name = draw.choice(ready)
            waiting.remove(name)
            sequence.begin(name)
            world.begin(name, moves[name][1])
            running.append(name)
            most_at_once = max(most_at_once, len(running))
        elif running:
            name = running.pop(draw.randrange(len(running)))
            has_moved = not (is_failing and draw.random() < 0.3)
            sequence.end(name, has_moved=has_moved)
            world.end(name, moves[name][has_moved])
            done_moves += [name] if has_moved else []
        else:
            return moves, done_moves, waiting, most_at_once
        world.check()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_no_host_is_overcommitted_and_no_rule_broken_at_any_moment(seed):
    _play(random.Random(seed), is_failing=True)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_a_plan_without_failed_moves_is_completed(seed):
    moves, done_moves, not_begun, _at_once = _play(random.Random(seed), is_failing=False)

    assert not_begun == [] and sorted(done_moves) == sorted(moves)


def test_many_moves_are_under_way_at_once():
    results = [_play(random.Random(seed), is_failing=False) for seed in range(30)]

    assert sum(at_once >= 3 for *_moves, at_once in results) >= 8


def _swap():
    """Return hosts, one of them empty, and two moves: the second needs the first."""
    hosts = {name: host(10) for name in "abc"}
    vms = {name: whatif.needs_of_move(moving(name, 10)) for name in ("on_a", "on_b")}
    for name, vm in vms.items():
        hosts[name[-1]] = whatif.with_vm(hosts[name[-1]], vm)
    return hosts, vms, {"on_a": ("a", "c"), "on_b": ("b", "a")}


@pytest.mark.parametrize("has_moved", [True, False])
def test_a_host_is_filled_only_after_its_vm_has_left(has_moved):
    hosts, vms, moves = _swap()
    sequence = Sequence(hosts, vms, moves)

    assert list(sequence.ready(["on_a", "on_b"])) == ["on_a"]
    sequence.begin("on_a")
    assert list(sequence.ready(["on_b"])) == []
    sequence.end("on_a", has_moved=has_moved)
    assert list(sequence.ready(["on_b"])) == (["on_b"] if has_moved else [])


def test_a_later_move_does_not_take_the_room_of_one_that_has_not_begun():
    hosts = {"a": host(10), "b": host(10), "c": host(10), "d": host(100)}
    vms = {name: whatif.needs_of_move(moving(name, 10)) for name in ("one", "two")}
    hosts["a"] = whatif.with_vm(hosts["a"], vms["one"])
    hosts["c"] = whatif.with_vm(hosts["c"], vms["two"])
    sequence = Sequence(hosts, vms, {"one": ("a", "b"), "two": ("c", "b")})

    # The first move waits for a slot, and is passed over.
    assert list(itertools.islice(sequence.ready(["one", "two"]), 2)) == ["one"]


def test_overcommitted_hosts_may_be_emptied():
    hosts = {"a": told.but(host(5), memory={"limit_mib": 5, "committed_mib": 10}), "b": host(50)}
    vms = {"one": whatif.needs_of_move(moving("one", 10))}

    sequence = Sequence(hosts, vms, {"one": ("a", "b")})

    assert list(sequence.ready(["one"])) == ["one"] and fit.free(hosts["a"])["memory_mib"] < 0
