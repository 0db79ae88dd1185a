"""Commands are thin and documented; files and functions are small; the package is complete."""

import ast
import re
from fnmatch import fnmatch
from pathlib import Path

import move_tests
import pytest
import tomllib
import trees

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "_modules",
    "_runners",
    "_states",
    "_pillar",
    "_output",
    "_grains",
    "_engines",
    "_clouds",
    "_utils",
    "tests",
)
SOURCES = [p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.py"))]
SALT_MODULES = [p for kind in ("_modules", "_runners") for p in sorted((ROOT / kind).glob("*.py"))]


def functions(path):
    """Return the functions of a file, nested ones too."""
    return [n for n in trees.nodes(path) if isinstance(n, ast.FunctionDef)]


def public(path):
    """Return the functions that users call."""
    return [
        f
        for f in trees.tree(path).body
        if isinstance(f, ast.FunctionDef) and not f.name.startswith("_")
    ]


COMMANDS = [
    pytest.param(p, f, id=f"{p.parent.name}.{f.name}")
    for p in SALT_MODULES
    for f in public(p)
    # What the outputters share is no command.
    if p.stem != "virt_text" or f.name == "output"
]


def body_lines(function):
    """Return how many lines of code a function has, its docstring left out."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def test_files_are_small():
    def wrong(path):
        lines = path.read_text().count("\n")
        return [lines] if lines > 600 else []

    assert trees.offenders(SOURCES, wrong, ROOT) == {}


# What has more public names than a reader keeps in mind; the list only becomes shorter.
MANY_NAMES = {
    "ca/ca.py": 15,
    "cells/answers.py": 13,
    "cells/registry.py": 18,
    "certificates/host/installed.py": 15,
    "cluster/membership.py": 15,
    "cluster/orders.py": 19,
    "core/protocol/diskprotocol.py": 15,
    "core/arguments.py": 29,
    "core/errors.py": 20,
    "core/files.py": 19,
    "core/journal/records.py": 13,
    "core/options/config.py": 16,
    "core/options/optionkinds.py": 18,
    "core/protocol/moveprotocol.py": 45,
    "core/terminal.py": 15,
    "libvirt/domains/guestanswers.py": 13,
    "libvirt/domains/lifecycle.py": 38,
    "libvirt/domains/migrate.py": 13,
    "libvirt/domains/query.py": 15,
    "libvirt/domains/snapshots.py": 14,
    "libvirt/hostfacts.py": 14,
    "libvirt/reservations.py": 26,
    "libvirt/storage/pools.py": 22,
    "libvirt/storage/volumes.py": 23,
    "migration/master/evacuationnotes.py": 14,
    "network/bridge/links.py": 13,
    "network/firewall/rules.py": 19,
    "placement/answers.py": 33,
    "placement/brief.py": 14,
    "seeding/offline/lending.py": 14,
    "seeding/offline/worker/confined.py": 16,
    "seeding/shared/minionpackages.py": 19,
    "storage/diskpaths.py": 20,
    "storage/door.py": 14,
    "storage/images/cache.py": 18,
    "storage/policies.py": 49,
    "storage/trash.py": 17,
    "storage/vmvolumes.py": 14,
    "vm/profiles.py": 14,
    "vm/show/host/inspect.py": 15,
    "xml/__init__.py": 13,
    "xml/domain/osboot.py": 13,
    "xml/edit/devicematch.py": 13,
    "xml/edit/readdomain.py": 34,
    "xml/fields.py": 22,
    "xml/storage/storagepool.py": 13,
}


def public_names(path):
    """Return the functions, classes and constants of a file without an underscore."""
    names = set()
    for node in trees.tree(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {
                n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)
            }
    return {name for name in names if not name.startswith("_") and name != "log"}


def test_files_of_the_library_have_few_public_names():
    library = ROOT / "_utils/saltvirt"
    counts = {
        str(path.relative_to(library)): len(public_names(path)) for path in library.rglob("*.py")
    }

    assert {name: count for name, count in counts.items() if count > MANY_NAMES.get(name, 12)} == {}
    assert [name for name in MANY_NAMES if counts.get(name, 0) <= 12] == []


def test_the_formatter_has_no_exceptions():
    here = Path(__file__).resolve()
    # Programs of ours have no ending.
    programs = [ROOT / "tests" / name for name in ("demo", "env", "lab/lab", "swarm/swarm")]

    def wrong(path):
        return re.findall(r"# fmt: *\w+", path.read_text()) if path.resolve() != here else []

    assert trees.offenders([*SOURCES, *programs], wrong, ROOT) == {}


def test_functions_are_small():
    def wrong(path):
        return [f.name for f in functions(path) if body_lines(f) > 60]

    assert trees.offenders(SOURCES, wrong, ROOT) == {}


@pytest.mark.parametrize(("path", "function"), COMMANDS)
def test_a_command_is_thin(path, function):
    assert body_lines(function) <= 20


@pytest.mark.parametrize(("path", "function"), COMMANDS)
def test_a_command_explains_itself(path, function):
    text = ast.get_docstring(function) or ""
    first = text.split("\n", 1)[0]
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]

    assert first.endswith((".", "``.")) or "." in text.split("\n\n")[0]
    assert "CLI Example:" in text
    assert ".. code-block:: bash" in text
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize(("path", "function"), COMMANDS)
def test_an_example_calls_the_command_it_is_written_for(path, function):
    text = ast.get_docstring(function).split("code-block:: bash", 1)[1]
    name = function.name.rstrip("_")

    own = re.search(r'^__virtualname__ = "(\w+)"$', path.read_text(), re.MULTILINE)
    called = own[1] if own else path.stem
    assert re.search(rf"\b{called}\.{name}\b", text)


def test_every_folder_of_code_is_in_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    library = {
        ".".join(["saltvirt", *p.parent.relative_to(ROOT / "_utils/saltvirt").parts])
        for p in (ROOT / "_utils/saltvirt").rglob("*.py")
    }
    modules = {f"saltvirt.{p.name.strip('_')}" for p in ROOT.glob("_*") if p.name != "_utils"}

    assert set(project["packages"]) == library | modules | {"saltvirt.formula.hypervisor"}
    assert modules <= set(project["package-dir"])


def test_no_folder_of_the_library_has_more_than_25_files():
    def wrong(folder):
        count = len([p for p in folder.glob("*.py") if p.name != "__init__.py"])
        return [count] if count > 25 else []

    folders = sorted({p.parent for p in (ROOT / "_utils/saltvirt").rglob("*.py")})
    assert {str(folder): wrong(folder) for folder in folders if wrong(folder)} == {}


def test_every_folder_of_code_has_an_init():
    folders = {p.parent for p in SOURCES if "tests" not in p.parts}

    without = {f.name for f in folders if not (f / "__init__.py").exists()}

    assert without <= {"_utils"}


def test_no_source_names_a_machine_or_leaves_a_todo():
    pattern = re.compile(r"\b(TODO|FIXME|XXX)\b|/home/|/work/|/root/")
    found = [
        f"{path}:{number}"
        for path in SOURCES
        if path.name != "test_sources.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]

    assert found == []


# What a release had in this order is called by position, and new arguments come after it.
ORDERS = {
    "evacuate": ["host", "max_parallel", "dry_run", "stopped", "quiet"],
    "restore": ["host", "max_parallel", "quiet"],
    "rebalance": ["max_moves", "threshold", "dry_run", "quiet"],
}


@pytest.mark.parametrize("name", ORDERS)
def test_new_arguments_come_after_those_of_the_release_before(name):
    (function,) = [f for f in public(ROOT / "_runners/virt_migrate.py") if f.name == name]

    assert [arg.arg for arg in function.args.args][: len(ORDERS[name])] == ORDERS[name]


def test_unit_tests_are_in_the_room_of_what_they_test_and_called_by_it():
    # tools/move_tests.py moves them, by a map.
    assert move_tests.find_misplaced() == []


def test_every_test_is_collected(pytestconfig):
    tests = {path for path in SOURCES if path.name.startswith("test_")}
    skipped = pytestconfig.getini("norecursedirs")

    assert len(tests) > 100
    lost = [
        path
        for path in tests
        if any(fnmatch(one, rule) for one in path.relative_to(ROOT).parts for rule in skipped)
    ]
    assert lost == []
