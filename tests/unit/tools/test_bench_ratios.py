"""The ratios of ``make bench`` are compared with the accepted ones."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[2] / "bench" / "ratios.py"
SPEC = importlib.util.spec_from_file_location("bench_ratios", PATH)
ratios = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(ratios)


@pytest.mark.parametrize(("now", "mark"), [(0.5, ""), (2.0, ""), (2.19, ""), (2.21, "WORSE")])
def test_a_ratio_worse_by_more_than_a_tenth_is_marked(now, mark):
    rows, worse = ratios.compared({"move": now, "seed": 1.0}, {"move": 2.0, "seed": 1.0})

    assert rows == [("move", f"{now:.2f} x", "2.00 x", mark), ("seed", "1.00 x", "1.00 x", "")]
    assert worse == (["move"] if mark else [])


def test_a_ratio_that_one_run_lacks_is_shown_and_not_judged():
    rows, worse = ratios.compared({"new": 9.0}, {"lost in the noise": 1.0})

    assert rows == [("new", "9.00 x", "-", ""), ("lost in the noise", "-", "1.00 x", "")]
    assert worse == []


def test_the_next_run_is_compared_with_the_accepted_ratios(tmp_path):
    assert ratios.read(tmp_path / "ratios.json") == {}

    ratios.write({"move": 1.81751}, tmp_path / "ratios.json")

    assert ratios.read(tmp_path / "ratios.json") == {"move": 1.818}
