"""Entries of the next release have names that towncrier knows; their page has all kinds."""

import re
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "changelog"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
KINDS = [kind["directory"] for kind in SETTINGS["type"]]
NAME = re.compile(rf"(\+[\w-]+|\d+)\.({'|'.join(KINDS)})(\.\d+)?\.md")
OTHERS = {"README.md", Path(SETTINGS["template"]).name}


def is_entry(name):
    """Return whether a file of this name becomes an entry of the changelog."""
    return NAME.fullmatch(name) is not None


def test_each_file_is_an_entry():
    names = {path.name for path in FOLDER.iterdir()} - OTHERS

    assert [name for name in sorted(names) if not is_entry(name)] == []


def test_the_page_has_each_kind():
    text = (FOLDER / "README.md").read_text()

    assert [kind for kind in KINDS if f"`{kind}`" not in text] == []


def test_the_settings_name_what_is_there():
    assert (ROOT / SETTINGS["template"]).exists()
    assert SETTINGS["start_string"] in (ROOT / SETTINGS["filename"]).read_text()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("+trash.fixed.md", True),
        ("+trash.fixed.2.md", True),
        ("123.added.md", True),
        ("+trash.improved.md", False),
        ("trash.fixed.md", False),
        ("17.fixed.field-1.md", False),
    ],
)
def test_an_entry_is_known_by_its_name(name, expected):
    assert is_entry(name) is expected
