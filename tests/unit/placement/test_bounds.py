"""The bounds that the bench compares with are bounds: beside all ways that there are."""

import itertools
import random
import statistics

import bounds
import pytest


def test_no_moves_leave_what_there_is():
    shares, vms = [0.6, 0.2], [[0.3, 0.3], [0.2]]

    assert bounds.least_uneven(shares, vms, 0) == pytest.approx(0.2, abs=1e-3)
    assert bounds.fewest_hosts([(2, 5)] * 7, (4, 100)) == 4


def test_no_plan_of_as_many_moves_is_more_even():
    draw = random.Random(4)
    for _cloud in range(5):
        at = [draw.randrange(3) for _vm in range(6)]
        sizes = [draw.choice([0.05, 0.1, 0.2]) for _vm in at]
        movable = [[s for s, a in zip(sizes, at, strict=True) if a == h] for h in range(3)]
        shares = [sum(vms) for vms in movable]
        for most in (1, 3):
            least = min(
                statistics.pstdev(
                    [sum(s for s, a in zip(sizes, to, strict=True) if a == h) for h in range(3)]
                )
                for to in itertools.product(range(3), repeat=len(at))
                if sum(a != b for a, b in zip(at, to, strict=True)) <= most
            )
            assert bounds.least_uneven(shares, movable, most) <= least + 1e-9
