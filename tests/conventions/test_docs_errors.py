"""What the pages' tables quote of our errors is in the code, word for word."""

import pytest
import saidkit
from saidkit import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# Texts of a code: one by itself, those of which another is a value, and where that begins.
CODE = """no VM called …
VM … is being … by another salt-run
moved
VM … was removed
is here: …
two of them …
have it
"""


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_what_a_page_says_that_we_say_is_in_the_code(page):
    said = [x for quote in saidkit.quoted(page.read_text()) for x in saidkit.pieces(quote)]

    assert [x for x in said if not saidkit.is_said(x, saidkit.corpus())] == []


@pytest.mark.parametrize(
    ("quote", "is_ours"),
    [
        ("`no VM called …`", True),
        ("`no machine called …`", False),
        ("`VM … is being moved by another`", True),
        ("`VM … is being removed by another`", False),  # that word is only a part of a text
        ("`VM … is here: two of them have it`", True),
        ("`VM … is here: two of us have it`", False),
    ],
)
def test_a_planted_quote_is_found_out(quote, is_ours):
    table = f"| It says | It means |\n|---|---|\n| {quote} | nothing |\n"
    (piece,) = [x for one in saidkit.quoted(table) for x in saidkit.pieces(one)]

    assert saidkit.is_said(piece, CODE) is is_ours
