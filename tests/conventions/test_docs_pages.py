"""Each page is in the index, each picture has words, and the index of messages has all tables."""

import re
import xml.etree.ElementTree as ET

import messages
import pytest
from saidkit import ROOT

DOCS = ROOT / "docs"


def test_every_page_is_in_the_index_and_in_the_readme():
    names = {path.stem for path in DOCS.glob("*.md")} - {"index"}
    listed = re.findall(r"^([\w-]+)$", (DOCS / "index.md").read_text(), re.MULTILINE)
    linked = set(re.findall(r"\(docs/([\w-]+)\.md", (ROOT / "README.md").read_text()))

    assert sorted(listed) == sorted(names)
    assert names - linked == set()


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_has_a_title_and_words_for_those_who_do_not_see_it(path):
    root = ET.parse(path).getroot()
    texts = [root.findtext(f"{{http://www.w3.org/2000/svg}}{tag}") for tag in ("title", "desc")]

    assert root.get("aria-labelledby") == "title desc" and all(texts)
    assert "prefers-color-scheme: dark" in path.read_text()
    image = re.compile(rf"!\[[^]]+\]\({path.name}\)")
    assert any(image.search(page.read_text()) for page in DOCS.glob("*.md"))


def test_the_index_of_messages_has_the_tables_of_the_pages():
    page = (DOCS / "messages.md").read_text()

    assert page == messages.index(), "run tools/messages.py >docs/messages.md"


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("| It says | Do |\n|---|---|\n| `no VM` | [look](#there) |", 1),
        ("| Message | Meaning |\n|---|---|\n| `a` | the same |\n| a host died | wait |", 1),
        ("| It says | Do |\n|---|---|\n| `a` | b |\n\n| Other | Do |\n|---|---|\n| `c` | d |", 1),
        ("| Option | Default |\n|---|---|\n| `a` | b |", 0),
    ],
)
def test_a_row_leads_to_the_table_that_it_is_of(tmp_path, table, rows):
    page = tmp_path / "page.md"
    page.write_text(f"# My page\n\n## When it fails\n\n{table}\n")
    found = list(messages.messages(page))

    assert [row.link for row in found] == ["[My page](page.md#when-it-fails)"] * rows
    assert [row.meaning for row in found] in (
        ["[look](page.md#there)"] * rows,
        [""] * rows,
        ["b"] * rows,
    )
