"""Moves of a plan that are under way at once: whatever they end in, nothing is overcommitted."""

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


def _clouds(draw):
    """Return hosts with hardly any room, in racks, and VMs on them with groups."""
    hosts = {
        f"h{n}": host(draw.choice([16, 24, 32]), tags={"rack": draw.choice(RACKS)})
        for n in range(draw.randint(3, 6))
    }
    vms, at = {}, {}
    for number in range(draw.randint(3, 16)):
        given_ = {"affinity": ["a"]} if draw.random() < 0.2 else {}
        if draw.random() < 0.4:
            given_ = {"anti_affinity": [draw.choice(["x", "y@rack"])]}
        vm = moving(f"v{number}", draw.choice([4, 8, 12]), **given_)
        fitting = [one.host for one in choose.evaluate(hosts, whatif.needs_of_move(vm)) if one.fits]
        if fitting:
            there = draw.choice(fitting)
            hosts[there] = whatif.with_vm(hosts[there], whatif.needs_of_move(vm))
            vms[vm.name], at[vm.name] = whatif.needs_of_move(vm), there
    return hosts, vms, at


def _plan(draw, hosts, vms, at):
    """Return moves that can be made one after the other, of which many need one before them."""
    moves = {}
    for name in draw.sample(list(vms), len(vms)) * 2:
        if name in moves:
            continue
        # Its own host is looked at too: no VM leaves others of its affinity group behind.
        fitting = [one.host for one in choose.evaluate(hosts, vms[name]) if one.fits]
        if fitting:
            source, to = at[name], draw.choice(fitting)
            moves[name] = (source, to)
            hosts = {
                **hosts,
                source: whatif.without_vm(hosts[source], vms[name]),
                to: whatif.with_vm(hosts[to], vms[name]),
            }
    return moves


class _World:
    """The hosts themselves: who is where, with VMs on their way on both."""

    def __init__(self, hosts, vms, at):
        self.hosts, self.vms = hosts, vms
        self.on = {name: {there} for name, there in at.items()}

    def check(self):
        """Look at each host and each group as it is at this moment."""
        for name, info in self.hosts.items():
            there = [self.vms[vm] for vm, at in self.on.items() if name in at]
            assert sum(vm.memory_mib for vm in there) <= info.memory.limit_mib
            apart = [group for vm in there for group in vm.anti_affinity]
            assert len(apart) == len(set(apart)), f"{name} has two of a group"
        affine = [at for vm, at in self.on.items() if self.vms[vm].affinity]
        assert not affine or set.intersection(*affine), "an affinity group is parted"
        racks = {}
        for vm, at in self.on.items():
            for group in filter(groups.tag_of, self.vms[vm].anti_affinity):
                for one in at:
                    rack = (group, self.hosts[one].tags["rack"])
                    assert racks.setdefault(rack, vm) == vm, f"{rack} has two"

    def begin(self, name, to):
        self.on[name] = self.on[name] | {to}

    def end(self, name, at):
        self.on[name] = {at}


def _played(draw, is_failing):
    """Make moves as they may be made, in any order; return what was made and what never began."""
    hosts, vms, at = _clouds(draw)
    moves = _plan(draw, hosts, vms, at)
    world, sequence = _World(hosts, vms, at), Sequence(hosts, vms, moves)
    world.check()
    waiting, under_way, made = list(moves), [], []
    at_once = 0
    while True:
        ready = list(sequence.ready(waiting))
        if ready and (not under_way or draw.random() < 0.6):
            # Some are passed over, as those that have no turn on a host are.
            name = draw.choice(ready)
            waiting.remove(name)
            sequence.begin(name)
            world.begin(name, moves[name][1])
            under_way.append(name)
            at_once = max(at_once, len(under_way))
        elif under_way:
            name = under_way.pop(draw.randrange(len(under_way)))
            has_moved = not (is_failing and draw.random() < 0.3)
            sequence.end(name, has_moved=has_moved)
            world.end(name, moves[name][has_moved])
            made += [name] if has_moved else []
        else:
            return moves, made, waiting, at_once
        world.check()


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_at_no_moment_is_a_host_overcommitted_or_a_rule_broken(seed):
    _played(random.Random(seed), is_failing=True)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_a_plan_of_which_no_move_fails_is_made_to_its_end(seed):
    moves, made, left, _at_once = _played(random.Random(seed), is_failing=False)

    assert left == [] and sorted(made) == sorted(moves)


def test_many_moves_are_under_way_at_once():
    found = [_played(random.Random(seed), is_failing=False) for seed in range(30)]

    assert sum(at_once >= 3 for *_moves, at_once in found) >= 8


def _swap():
    """Return hosts of which one is empty, and two moves: the second needs the first."""
    hosts = {name: host(10) for name in "abc"}
    vms = {name: whatif.needs_of_move(moving(name, 10)) for name in ("on_a", "on_b")}
    for name, vm in vms.items():
        hosts[name[-1]] = whatif.with_vm(hosts[name[-1]], vm)
    return hosts, vms, {"on_a": ("a", "c"), "on_b": ("b", "a")}


@pytest.mark.parametrize("has_moved", [True, False])
def test_a_host_is_filled_only_when_what_was_there_has_left_it(has_moved):
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

    # The first has no turn yet, and is passed over.
    assert list(itertools.islice(sequence.ready(["one", "two"]), 2)) == ["one"]


def test_hosts_that_are_full_already_may_be_emptied():
    hosts = {"a": told.but(host(5), memory={"limit_mib": 5, "committed_mib": 10}), "b": host(50)}
    vms = {"one": whatif.needs_of_move(moving("one", 10))}

    sequence = Sequence(hosts, vms, {"one": ("a", "b")})

    assert list(sequence.ready(["one"])) == ["one"] and fit.free(hosts["a"])["memory_mib"] < 0
