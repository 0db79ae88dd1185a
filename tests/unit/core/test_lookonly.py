"""The table of reading functions is complete: each function of each file is in it."""

import importlib.util
import inspect
from pathlib import Path

import pytest
from saltvirt.core.salt import lookonly

ROOT = Path(__file__).resolve().parents[3]
TABLES = {"_modules": lookonly.MODULES, "_runners": lookonly.RUNNERS}
FILES = [
    (folder, path.stem)
    for folder in TABLES
    for path in sorted((ROOT / folder).glob("*.py"))
    if path.stem != "__init__"
]


def offered(folder, stem):
    """Return the module's name and the functions that Salt's loader would find in a file."""
    spec = importlib.util.spec_from_file_location(f"{folder}.{stem}", ROOT / folder / f"{stem}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    aliases = getattr(module, "__func_alias__", {})
    names = {
        aliases.get(name, name)
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and not name.startswith("_")
        and inspect.unwrap(value).__module__ == module.__name__
    }
    return getattr(module, "__virtualname__", stem), names


@pytest.mark.parametrize(("folder", "stem"), FILES, ids="/".join)
def test_each_function_is_on_one_side_of_the_table(folder, stem):
    table = TABLES[folder][stem]
    module, names = offered(folder, stem)
    looks, changes = table.looks.split(), table.changes.split()

    assert table.module == module
    assert sorted([*looks, *changes]) == sorted(names)


@pytest.mark.parametrize("folder", TABLES)
def test_the_table_has_no_removed_files(folder):
    assert sorted(TABLES[folder]) == [
        stem for folder_of_file, stem in FILES if folder_of_file == folder
    ]


def test_a_name_in_two_files_is_on_one_side():
    rows = [row for table in TABLES.values() for row in table.values()]
    looking = frozenset().union(*(row.looking() for row in rows))
    changing = frozenset().union(*(row.changing() for row in rows))

    assert not looking & changing
