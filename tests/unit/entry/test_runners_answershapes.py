"""Each runner function has a shape of its answer, and the lab's recorded answers have it."""

from pathlib import Path

import answershapes
import pytest
import recordedanswers
from saltvirt.core.salt import lookonly

ROOT = Path(__file__).resolve().parents[3]
FUNCTIONS = {
    f"{table.module}.{name}"
    for table in lookonly.RUNNERS.values()
    for name in (*table.looks.split(), *table.changes.split())
}
ALIASES = {"virt.force_off", "virt.snapshots", "virt.revert", "virt.hyper_info", "virt.next_hyper"}
RECORDED = recordedanswers.recorded()


def test_each_runner_function_has_a_shape():
    assert set(answershapes.RUNNERS) == FUNCTIONS | ALIASES


@pytest.mark.parametrize("function", sorted(RECORDED))
def test_a_recorded_answer_has_the_shape_of_its_function(function):
    shape = answershapes.RUNNERS[function]

    assert list(answershapes.mismatches(shape, RECORDED[function])) == []


@pytest.mark.parametrize(
    ("shape", "value", "wrong"),
    [
        (int, 3, []),
        (int, "3", ["answer: str instead of int"]),
        (int, True, ["answer: bool instead of int"]),
        (float, 3, []),
        (str, None, ["answer: NoneType instead of text"]),
        ((str, None), None, []),
        ([str], ["a", 1], ["answer[1]: int instead of text"]),
        ([str], "a", ["answer: str instead of a list"]),
        ({"a": int, "b?": int}, {"b": 1}, ["answer: lacks a"]),
        ({"a": int}, {"a": 1, "c": 1}, ["answer: has c"]),
        ({"HOST": [str], "failed?": str}, {"h1": ["a"], "h2": []}, []),
        ({"HOST": [str]}, {"h1": {}}, ["answer.h1: dict instead of a list"]),
        ({"HOST": [str]}, [], ["answer: list instead of a mapping"]),
        (({"a": int}, [int]), {"a": "b"}, ["answer.a: str instead of int"]),
        (answershapes.ANY, object(), []),
    ],
)
def test_a_wrong_answer_is_distinguished_from_a_right_one(shape, value, wrong):
    assert list(answershapes.mismatches(shape, value)) == wrong


def test_the_page_has_each_function_and_each_odd_form():
    page = answershapes.page()

    assert [name for name in FUNCTIONS if f"salt-run {name}\n" not in page] == []
    assert set(answershapes.ODD) <= set(answershapes.RUNNERS)
    assert '"certificates": [' in page and "HOST: {STATE: [text]}" in page
    assert max(map(len, page.splitlines())) < 200


def test_odd_forms_are_described_where_salt_3006_is_compared():
    text = (ROOT / "docs/compat.md").read_text()

    assert [
        description for description in answershapes.ODD.values() if description not in text
    ] == []
