"""The pages say what is: every option, every command, every link."""

import ast
import re
from pathlib import Path

import commandpage
import pytest
import rooms
from saltvirt.core import diskbus, vmcommands
from saltvirt.core.options import config

ROOT = Path(__file__).resolve().parents[2]
CHANGES = [ROOT / "CHANGELOG.md", ROOT / "changelog/README.md"]
PAGES = [ROOT / "README.md", *CHANGES, *sorted((ROOT / "docs").glob("*.md"))]
# How an option of a nested mapping is written, and the library's field behind it.
NESTED = {
    "uri": "connection:uri",
    "username": "connection:auth:username",
    "password": ":password",
    "seed": "seed:master",
    "pki": "pki:days",
    "minion_packages": "minion_packages:source",
}


def commands(folder):
    """Return the public functions of the Salt modules in a folder."""
    for path in sorted((ROOT / folder).glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield node.name.rstrip("_")


@pytest.mark.parametrize("kind", [config.HostSettings, config.MasterSettings])
def test_every_option_is_in_the_reference_with_its_default(kind):
    text = (ROOT / "docs/configuration.md").read_text()
    rows = {row.split("|")[1]: row for row in text.splitlines() if row.startswith("| `")}

    for name, field in kind.__dataclass_fields__.items():
        if name == "is_trash_set":
            continue  # says where virt:trash_days is from
        shown = NESTED.get(name, name)
        row = next((row for key, row in rows.items() if f":{shown.strip(':')}`" in key), None)
        assert row, f"virt:{name} is not in docs/configuration.md"
        if isinstance(field.default, str | int | float) and field.default is not None:
            assert f"`{field.default}`" in row, f"virt:{name}: default {field.default!r}: {row}"


@pytest.mark.parametrize("folder", ["_modules", "_runners"])
def test_every_command_is_in_the_compatibility_table(folder):
    page = (ROOT / "docs/compat.md").read_text()
    module, runner = page.split("## Runner\n")
    text = module if folder == "_modules" else runner

    assert [name for name in commands(folder) if f"`{name}`" not in text] == []


def test_the_page_of_commands_on_vms_has_each_of_them():
    text = (ROOT / "docs/vm-commands.md").read_text()
    table = text.partition("## The commands\n")[2].partition("\n\n- ")[0]
    shown = set(re.findall(r"`(\w+)`", table))
    names = {name for row in vmcommands.existing() for name in row.names}

    assert shown == names - {"force_off"}
    several = text.partition("## Several VMs")[2]
    single = {row.names for row in vmcommands.existing() if not row.takes_several}
    assert [names for names in single if not any(f"`{name}`" in several for name in names)] == []


def leads_to_a_heading(page, link):
    """Return whether a page has the heading that a link names, as its anchor is written."""
    name, _sign, anchor = link.partition("#")
    there = (page.parent / name if name else page).read_text()
    texts = re.findall(r"^#+ (.+)$", there, re.M)
    return anchor in {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_paths_lead_somewhere(page):
    text = page.read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    headings = [link for link in re.findall(r"\]\(([^)]*#[^)]+)\)", text) if "://" not in link]
    paths = re.findall(r"`((?:tests|docs|_\w+)/[\w./-]+)`", text)

    assert [link for link in links if not (page.parent / link).exists()] == []
    assert [link for link in headings if not leads_to_a_heading(page, link)] == []
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_picture_of_the_rooms_is_that_of_the_code():
    page = (ROOT / "docs/architecture.md").read_text()

    assert f"```text\n{rooms.picture()}\n```" in page, "run tools/rooms.py"


def test_the_page_of_all_commands_is_that_of_the_docstrings():
    page = (ROOT / "docs/commands.md").read_text()

    assert page == commandpage.page(), "run: tests/env python3 tools/commandpage.py --write"


def test_the_readme_names_every_package_the_lab_installs():
    from labkit.deps import TOOLS

    text = (ROOT / "README.md").read_text()

    assert [package for _, package, _ in TOOLS if f"`{package}`" not in text] == []


def test_every_target_of_the_makefile_is_a_line_the_readme_can_name():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M)

    assert {"demo", "test", "unit", "lab", "bench", "docs"} <= set(targets)


def test_the_page_of_what_keeps_a_file_has_the_table_of_the_code():
    page = (ROOT / "docs/what-keeps-a-file.md").read_text()
    source = (ROOT / "_utils/saltvirt/storage/policies.py").read_text()
    table = source.partition('TABLE = """\n')[2].partition('"""')[0].rstrip()

    assert f"```text\n{table}\n```" in page


def test_the_configuration_lists_the_buses_of_disks():
    page = (ROOT / "docs/configuration.md").read_text()

    assert f"`model` (the bus: {', '.join(diskbus.BUSES)})" in page
