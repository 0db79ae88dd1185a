"""Which room may import which, by the syntax trees: docs/architecture.md has the picture."""

import ast
import functools
import sys
from pathlib import Path

import pytest
import rooms
import trees

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "_utils" / "saltvirt"
SALT_MODULES = [
    p
    for kind in (
        "_modules",
        "_runners",
        "_states",
        "_pillar",
        "_output",
        "_grains",
        "_engines",
        "_clouds",
    )
    for p in sorted((ROOT / kind).glob("*.py"))
]
PARTS = sorted(LIBRARY.rglob("*.py"))
ORDER = list(rooms.ROOMS)
# An interrupted move is brought to its end before its VM is made anew, or purged.
UPWARDS = {
    ("vm/create/master/deploy.py", "migration.master.recovery"),
    ("vm/create/master/many/planning.py", "migration.master.recovery"),
    ("vm/purge/master/purging.py", "migration.master.recovery"),
    ("vm/purge/master/undoing.py", "migration.master.recovery"),
}
DUNDERS = {"__opts__", "__salt__", "__grains__", "__pillar__", "__context__", "__jid_event__"} | {
    "__utils__",
    "__active_provider_name__",
}
ELEMENT_FINDERS = {"find", "findall", "findtext", "iterfind"}
# The XML of pools and networks, of which one question is asked where libvirt is.
OTHER_XML = {
    LIBRARY / f"libvirt/{name}.py" for name in ("hostfacts", "domains/lifecycle", "storage/pools")
}


@functools.cache
def imports(path):
    """Return the full names of all modules that a file imports, with whether it is at the top."""
    return list(_imports(path))


def for_type_checkers(tree):
    """Return the ids of the statements of a file that only type checkers read."""
    branches = (node for node in tree.body if isinstance(node, ast.If))
    read = (branch for branch in branches if ast.unparse(branch.test) == "TYPE_CHECKING")
    return {id(statement) for branch in read for statement in branch.body}


def _imports(path):
    top = set(map(id, top_statements(trees.tree(path))))
    typing_only = for_type_checkers(trees.tree(path))
    for node in trees.nodes(path):
        if id(node) in typing_only:
            continue
        at_top = id(node) in top
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module
            if module == "saltvirt":
                yield from ((f"saltvirt.{alias.name}", at_top) for alias in node.names)
            else:
                yield module, at_top


def top_statements(tree):
    """Yield the statements of a file, with those of its blocks that only import."""
    for node in tree.body:
        yield node
        if isinstance(node, ast.Try) or is_lazy(node):
            yield from node.body


def is_lazy(node):
    """Return whether a statement is a block of imports that happen on first use."""
    return isinstance(node, ast.With) and ast.unparse(node.items[0]) == "lazy_imports()"


@functools.cache
def of_ours(path):
    """Return the modules of the library that a file imports, without the library's own name."""
    return rooms.imported_modules(path)


def part(path):
    """Return the room of a file of the library."""
    return path.relative_to(LIBRARY).parts[0]


def offenders(paths, found):
    """Return ``{file: what is wrong in it}``."""
    return trees.offenders(paths, found, ROOT)


def test_the_rules_are_read_off_all_files():
    assert len(SALT_MODULES) > 10
    assert len(PARTS) > 150
    assert sum(bool(of_ours(path)) for path in PARTS) > 100


def test_rooms_are_the_folders_of_the_library_and_nothing_is_loose():
    folders = {path.name for path in LIBRARY.iterdir() if (path / "__init__.py").exists()}
    assert folders == set(rooms.ROOMS)
    assert [path.name for path in LIBRARY.glob("*.py")] == ["__init__.py"]


def test_a_room_imports_only_rooms_below_it():
    def wrong(path):
        name, own = str(path.relative_to(LIBRARY)), rooms.module_name(path)
        return [
            module
            for module in of_ours(path)
            if own != "__init__" and ORDER.index(rooms.room(module)) < ORDER.index(rooms.room(own))
            if (name, module) not in UPWARDS
        ]

    assert offenders(PARTS, wrong) == {}


def test_master_and_hosts_never_import_each_other_and_pure_files_import_neither():
    def wrong(path):
        own = rooms.module_name(path)
        if own == "__init__":
            return []
        allowed = {"pure", "shared"} if rooms.side(own) in ("pure", "shared") else {rooms.side(own)}
        return [m for m in of_ours(path) if rooms.side(m) not in allowed | {"pure", "shared"}]

    assert offenders(PARTS, wrong) == {}


def test_imports_are_at_the_top_of_the_file():
    def wrong(path):
        return [name for name, at_top in imports(path) if not at_top]

    assert offenders([*SALT_MODULES, *PARTS], wrong) == {}


def test_dunders_stay_in_the_salt_modules():
    def wrong(path):
        return {n.id for n in trees.nodes(path) if isinstance(n, ast.Name)} & DUNDERS

    assert offenders(PARTS, wrong) == {}


# Rooms whose files may import a module; of salt all files of the master may, too.
EDGES = {
    "libvirt": {"libvirt"},
    "libvirt_qemu": {"libvirt"},
    "salt.client": {"cluster", "checks"},
    "subprocess": {"network", "seeding", "storage"},
    "salt": {"checks", "network", "seeding", "storage"},
}
SALT_IN_CORE = {"core/errors.py", "core/options/saltfiles.py"}


def may_use_salt(path):
    """Return whether a file may import Salt, wherever its room is."""
    name = str(path.relative_to(LIBRARY))
    is_of_master = path.parent != LIBRARY and rooms.side(rooms.module_name(path)) == "master"
    return is_of_master or name.startswith("core/salt/") or name in SALT_IN_CORE


@pytest.mark.parametrize("module", EDGES)
def test_edges_are_where_they_belong(module):
    def wrong(path):
        used = {name for name, _top in imports(path)} | {
            name.split(".")[0] for name, _ in imports(path)
        }
        is_allowed = part(path) in EDGES[module] or (module == "salt" and may_use_salt(path))
        return [module] if module in used and not is_allowed else []

    assert offenders(PARTS, wrong) == {}


def names_imported(path):
    """Yield the names of all modules, functions and classes that a file imports."""
    for node in trees.nodes(path):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def calls(path):
    """Yield ``(what, function, line)`` of calls like ``what.function()``; what may be ""."""
    for node in trees.nodes(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            what = node.func.value
            yield what.id if isinstance(what, ast.Name) else "", node.func.attr, node.lineno


def test_elements_of_a_domain_are_read_and_built_in_xml_alone():
    def wrong(path):
        # ``re.findall`` and the like are functions of a module.
        modules = set(names_imported(path))
        found = [one for one in calls(path) if one[1] in ELEMENT_FINDERS and one[0] not in modules]
        return found + [one for one in calls(path) if one[0] == "ET"]

    others = [path for path in PARTS if part(path) != "xml" and path not in OTHER_XML]
    assert len(others) < len(PARTS) - len(OTHER_XML) - 10
    assert offenders(others, wrong) == {}


@pytest.mark.parametrize(
    ("kind", "sides"),
    [
        ("_runners", {"master"}),
        ("_pillar", {"master"}),
        ("_modules", {"host"}),
        ("_states", {"host"}),
        ("_engines", {"host"}),
        ("_clouds", {"host"}),
    ],
)
def test_salt_modules_use_the_library_of_their_side(kind, sides):
    def wrong(path):
        allowed = sides | {"pure", "shared"}
        return [m for m in of_ours(path) if rooms.side(m) not in allowed]

    assert offenders(sorted((ROOT / kind).glob("*.py")), wrong) == {}


@pytest.mark.parametrize(
    "path",
    [path for path in [*SALT_MODULES, *PARTS] if any(map(is_lazy, trees.tree(path).body))],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_only_modules_of_the_library_are_imported_on_first_use(path):
    for block in filter(is_lazy, trees.tree(path).body):
        for statement in block.body:
            assert isinstance(statement, ast.ImportFrom), ast.unparse(statement)
            for alias in statement.names:
                module = f"{statement.module}.{alias.name}"
                assert (LIBRARY.parent / f"{module.replace('.', '/')}.py").is_file(), module


@pytest.mark.parametrize("kind", ["_grains", "_output"])
def test_what_stays_loaded_for_ever_does_not_pin_the_library(kind):
    # One grain has it laid aside, for jobs to take up: tests/unit/core/test_preload.py.
    for path in (ROOT / kind).glob("*.py"):
        assert not [name for name, _top in imports(path) if name.startswith("saltvirt")]


def test_nothing_but_the_declared_dependencies_is_imported():
    known = {"saltvirt", "salt", "cryptography", "yaml", "libvirt", "pycdlib", "pyroute2"} | {
        "libvirt_qemu",  # a part of libvirt-python
        "guestfs",  # in the worker, which the system's own Python runs
        *sys.stdlib_module_names,
    }

    def wrong(path):
        # The worker is a program of its own, whose files import each other.
        worker = path.parent.name == "worker"
        beside = {one.stem for one in path.parent.glob("*.py")} if worker else set()
        return {name.split(".")[0] for name, _top in imports(path)} - known - beside

    assert offenders([*SALT_MODULES, *PARTS], wrong) == {}
