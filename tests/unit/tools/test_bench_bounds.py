"""The bench's lower bounds hold against all possible plans."""

import itertools
import random
import statistics

import bounds
import pytest


def test_the_bound_without_moves_is_the_present_deviation():
    shares, vms = [0.6, 0.2], [[0.3, 0.3], [0.2]]

    assert bounds.least_uneven(shares, vms, 0) == pytest.approx(0.2, abs=1e-3)
    assert bounds.fewest_hosts([(2, 5)] * 7, (4, 100)) == 4


def used(sizes, at):
    """Return the used share of each of three hosts."""
    return [sum(s for s, a in zip(sizes, at, strict=True) if a == host) for host in range(3)]


def best(sizes, at, most):
    """Return the least standard deviation of all plans with at most this number of moves."""
    ways = itertools.product(range(3), repeat=len(at))
    few = (to for to in ways if sum(a != b for a, b in zip(at, to, strict=True)) <= most)
    return min(statistics.pstdev(used(sizes, to)) for to in few)


def test_no_plan_with_the_same_number_of_moves_is_more_even():
    draw = random.Random(4)
    for _cloud in range(5):
        at = [draw.randrange(3) for _vm in range(6)]
        sizes = [draw.choice([0.05, 0.1, 0.2]) for _vm in at]
        movable = [[s for s, a in zip(sizes, at, strict=True) if a == h] for h in range(3)]
        for most in (1, 3):
            bound = bounds.least_uneven(used(sizes, at), movable, most)
            assert bound <= best(sizes, at, most) + 1e-9
