"""What a page shows as a command's output is marked, so that a test of the lab compares it."""

import re

import pytest
from commandskit import PROGRAMS, ROOT

# The tests of these pages make each marked command print, and compare: tests/data/pageoutputs.py.
COMPARED = {
    "quickstart.md": "test_quickstart.py",
    "vm-commands.md": "test_vm_commands.py",
}
OUTPUT = re.compile(r"^(?:<!-- output: (?P<command>[^\n]*\S) -->\n)?```text\n", re.MULTILINE)


@pytest.mark.parametrize("page", COMPARED)
def test_every_output_names_the_command_that_prints_it(page):
    commands = [found["command"] for found in OUTPUT.finditer((ROOT / "docs" / page).read_text())]

    assert commands and None not in commands
    assert {command.split()[0] for command in commands} <= PROGRAMS


@pytest.mark.parametrize("page", COMPARED)
def test_a_test_of_the_lab_compares_the_outputs_of_a_page(page):
    text = (ROOT / "tests/cloud" / COMPARED[page]).read_text()

    assert f'"{page}"' in text and "pageoutputs.compare(" in text and '"--regenerate"' in text


def test_no_other_page_has_outputs_that_nobody_compares():
    pages = (ROOT / "docs").glob("*.md")

    marked = {page.name for page in pages if "<!-- output: " in page.read_text()}

    assert marked == set(COMPARED)
