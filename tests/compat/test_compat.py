"""What was right on Salt 3006 goes through and does the same, on both lines of Salt."""

import compatdiffers
import pytest
from compatkit import CHECKOUT, all_sides, differences, unexplained
from compatrest import ELSEWHERE, NEVER, NOT_JUDGED_YET
from compatrows import ROWS

HERE = {row.name: row for row in ROWS if row.function not in NOT_JUDGED_YET}


@pytest.fixture(scope="module")
def sides(tmp_path_factory):
    """What each side answers: ``{side: {"surface": [function], "outcomes": {row: outcome}}}``."""
    said = all_sides(tmp_path_factory.mktemp("sides"), [row.steps for row in ROWS])
    names = [row.name for row in ROWS]
    return {
        side: {**one, "outcomes": dict(zip(names, one["outcomes"], strict=True))}
        for side, one in said.items()
    }


def test_every_function_of_the_old_surface_has_its_place(sides):
    theirs, ours = (set(sides[side]["surface"]) for side in ("3006", "ours-3008"))
    asked = {row.function for row in ROWS}

    assert len(theirs) > 140
    assert theirs - ours - NEVER == set(), "nothing of the old surface is missing"
    assert theirs - asked - ELSEWHERE.keys() - NEVER == set()
    assert (asked | ELSEWHERE.keys() | NEVER) - theirs == set()
    assert ours & NEVER == set()
    assert asked & ELSEWHERE.keys() == set()


def test_what_is_asked_elsewhere_has_its_test_there():
    here = {
        function: file
        for function, (file, _why) in ELSEWHERE.items()
        if function not in NOT_JUDGED_YET
    }

    assert [file for file in here.values() if not (CHECKOUT / file).exists()] == []


def test_no_two_rows_have_one_name_and_each_reason_is_of_a_row():
    names = [row.name for row in ROWS]

    assert len(names) == len(set(names))
    assert (compatdiffers.DIFFERS.keys() | compatdiffers.OWED.keys()) - set(names) == set()


def outcome(returned, **effects):
    """What a side says of a call."""
    return {"return": returned, "effects": effects}


@pytest.mark.parametrize(
    ("theirs", "ours", "found"),
    [
        (outcome(["b", "a"]), outcome(["a", "b"]), set()),
        (outcome(True), outcome(None), {"/return"}),
        (outcome({"a": 1}), outcome({"a": 2}), {"/return/a"}),
        (outcome({"a": 1}), outcome({}), {"/return", "/return/a"}),
        (outcome(True, new=1), outcome(True), {"/effects", "/effects/new"}),
        (outcome(True), {"error": "x", "effects": {}}, {"/error"}),
        ({"error": "y", "effects": {}}, {"error": "x", "effects": {}}, set()),
        (
            {"error": "y", "effects": {}},
            {"error": "x", "effects": {"a": 1}},
            {"/effects", "/effects/a"},
        ),
    ],
)
def test_whatever_differs_is_found(theirs, ours, found):
    assert set(differences(theirs, ours)) == found


@pytest.mark.parametrize("line", ["3006", "3008"])
@pytest.mark.parametrize("name", HERE)
def test_it_answers_as_3006_did(sides, name, line):
    row = HERE[name]
    theirs, ours = (sides[side]["outcomes"][name] for side in ("3006", f"ours-{line}"))

    assert "broken" not in theirs and "broken" not in ours, (theirs, ours)
    reasons = compatdiffers.DIFFERS.get(name, {}) | compatdiffers.OWED.get(name, {})
    new, old = unexplained(differences(theirs, ours, shape=row.shape), reasons)
    assert new == {}, f"not in compatdiffers.py; {ours.get('where')}"
    assert old == [], "not a difference any more: take it out of compatdiffers.py"
    assert row.fails == ("error" in theirs and "error" in ours), (theirs, ours)
