"""Each recipe of CONTRIBUTING.md names every file that its example touches, and only real ones."""

import re
from pathlib import Path

import pytest
import words

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "tests/README.md")]
FOLDERS = ("_*", "docs", "hypervisor", "tests")
# By a word of the recipe's heading: how its example is written in code, tests and pages.
EXAMPLES = {
    "option": r"\bimage_limit_s\b",
    "element": r"\bcputune\b|cpu:tuning|\b_TUNING\b",
    "bus": r"\bdiskbus\b|DiskBus\(name=\"sata\"",
    "check": r"zmq-filtering",
    "leftover": r"[`\"' ]network-file[`\"' ]|\bNETWORK_FOLDERS\b",
    # Every file that names all methods.
    "seed": r"(?s)\A(?=.*\bnocloud\b)(?=.*\bguestfs\b)(?=.*\bnbd\b).*[`\"']credentials[`\"']",
    "runner": r"\bunauthorize\b",
    "argument": r"\bshrink=|``shrink``",
}
# Pages that were made are copies.
OTHERS = re.compile(r"^docs/(?:_build/|messages\.md$)")
RECIPES = re.findall(
    r"^## How to add (.+)\n([\s\S]+?)(?=^## |\Z)", PAGES[0].read_text(), re.MULTILINE
)


def named(text):
    """Return the paths that a text names in backticks."""
    return set(re.findall(r"`(\.?\w[\w.-]*/[\w./-]+)`", text))


def sources():
    """Yield ``(path, text)`` of code, tests and pages."""
    for folder in (path for pattern in FOLDERS for path in ROOT.glob(pattern)):
        for path in sorted(folder.rglob("*.*")):
            if path.suffix in (".py", ".md", ".xml", ".sls") and path != Path(__file__).resolve():
                yield str(path.relative_to(ROOT)), path.read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_exist_and_sentences_name_their_subject(page):
    counts, lines = words.count([page])

    assert [path for path in named(page.read_text()) if not (ROOT / path).exists()] == []
    assert counts["riddles"] == 0, lines


def test_recipes_are_in_the_order_of_their_examples():
    pairs = zip(RECIPES, EXAMPLES, strict=True)

    assert [key for (title, _text), key in pairs if key not in title] == []


@pytest.mark.parametrize("tool", ["ruff", "mypy"])
def test_the_hooks_have_the_version_that_the_project_pins(tool):
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    pinned = re.search(rf'"{tool}==([\d.]+)\.\*"', (ROOT / "pyproject.toml").read_text())[1]

    assert re.search(rf"/\S*{tool}\S*\n +rev: v{re.escape(pinned)}\.\d+\n", hooks)


@pytest.mark.parametrize(
    ("recipe", "example"), list(zip(RECIPES, EXAMPLES.values(), strict=True)), ids=EXAMPLES
)
def test_a_recipe_names_all_files_of_its_example(recipe, example):
    _title, text = recipe
    steps = list(map(int, re.findall(r"^(\d+)\. ", text, re.MULTILINE)))
    found = {path for path, source in sources() if re.search(example, source)}

    assert steps == list(range(1, len(steps) + 1))
    assert len(found) > 3
    assert sorted(path for path in found - named(text) if not OTHERS.search(path)) == []
