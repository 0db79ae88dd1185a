"""Names say what they hold, and sentences name their subject: tools/words.py counts both."""

from pathlib import Path

import pytest
import words

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("_modules", "_runners", "_states", "_pillar", "_grains", "_output", "_engines", "_clouds")
CODE = [ROOT / "_utils", *(ROOT / kind for kind in KINDS)]
# The glossary lists the words that are not used.
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES.remove(ROOT / "docs/glossary.md")
KITS = [ROOT / "tests/unit/kits"]


@pytest.fixture(scope="module")
def code():
    """The counts of all code that is installed, and a line for each occurrence."""
    return words.count(CODE)


def test_names_say_what_they_hold(code):
    counts, lines = code
    shown = [line for line in lines if ": name " in line]

    assert counts["vague"] / counts["names"] <= 0.005, shown
    assert counts["renamed"] <= 18, [line for line in lines if ": import " in line]


def test_names_of_the_kits_say_what_they_hold():
    counts, lines = words.count(KITS)

    assert counts["vague"] / counts["names"] <= 0.04, [line for line in lines if ": name " in line]


def test_sentences_name_their_subject(code):
    counts, lines = code
    assert 1000 * counts["riddles"] / counts["words"] <= 0.2, [x for x in lines if ": riddle" in x]

    counts, lines = words.count(PAGES)
    assert 1000 * counts["riddles"] / counts["words"] <= 0.5, lines


def test_sentences_of_pages_are_short():
    counts, lines = words.count([*PAGES, ROOT / "docs/glossary.md", ROOT / "CONTRIBUTING.md"])

    assert counts["long"] == 0, [line for line in lines if ": long " in line]


LONG = "Word " + " ".join(["word"] * 30)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{LONG}.", {1}),
        (f"Short.\n{LONG}.", {2}),
        (f"Short.\n\n- {LONG}\n- short", {3}),
        (" ".join(["word"] * 30) + ".", set()),
        (f"{LONG[:60]}. {LONG[60:].capitalize()}", set()),
        (f"- {LONG[:70]}\n- {LONG[70:]}", set()),
        (f"`{LONG}` is [one word](of-code.md).", set()),
        (f"| {LONG} | a table |", set()),
        (f"```text\n{LONG}\n```", set()),
    ],
)
def test_long_sentences_are_found_where_they_are(tmp_path, text, expected):
    path = tmp_path / "page.md"
    path.write_text(text)

    counts, lines = words.count([path])

    assert {int(line.split(":")[1]) for line in lines} == expected
    assert counts["long"] == len(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("for one in hosts:\n    pass\n", {"names": 1, "vague": 1}),
        ("def told(found, host):\n    pass\n", {"names": 2, "vague": 1}),
        ("# Nobody knows whose it is.\n", {"words": 5, "riddles": 2}),
        ("import copy as copying\n", {"renamed": 1}),
        ("import copy as copying\ndef copy():\n    pass\n", {}),
    ],
)
def test_the_counter_counts(tmp_path, text, expected):
    path = tmp_path / "a.py"
    path.write_text(text)

    counts, lines = words.count([path])

    assert {name: number for name, number in counts.items() if number} == expected
    assert bool(lines) == bool(expected)
