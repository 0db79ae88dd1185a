"""Who may import whom, read off the syntax trees: docs/development.md has the picture."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ROOT / "_utils" / "saltvirt"
SALT_MODULES = [
    p
    for kind in ("_modules", "_runners", "_states", "_pillar", "_output", "_grains")
    for p in sorted((ROOT / kind).glob("*.py"))
]
PARTS = sorted(LIBRARY.rglob("*.py"))
BASE = {
    "arguments",
    "config",
    "errors",
    "files",
    "keypair",
    "optional",
    "locks",
    "model",
    "nics",
    "content",
    "parts",
    "profiles",
    "protocol",
    "records",
    "sealed",
    "spec",
    "undo",
    "units",
    "wire",
    "xml",
}
MAY = {
    "ops": BASE | {"image", "kvm", "net", "ops", "pki", "placement", "seed"},
    "fleet": BASE | {"compat", "fleet", "pki", "placement"},
    "pki": {"files", "locks", "pki"},
    "kvm": BASE | {"kvm"},
    "image": BASE | {"image"},
    "net": BASE | {"net"},
    "seed": BASE | {"seed"},
    "placement": {"errors", "model", "placement", "units"},
    "xml": {"arguments", "errors", "model", "nics", "units", "xml"},
    "nics": {"arguments", "errors", "model"},
    "compat": {"errors"},
    "wire": {"errors"},
}
DUNDERS = {"__opts__", "__salt__", "__grains__", "__pillar__", "__context__", "__jid_event__"}
OF_ELEMENTS = {"find", "findall", "findtext", "iterfind"}
# The XML of pools and networks, of which one question is asked where libvirt is.
OTHER_XML = {f"_utils/saltvirt/kvm/{name}.py" for name in ("host", "lifecycle", "pools")}
SALT_ALLOWED = {"compat", "errors", "fleet", "image", "net", "ops"}


def imports(path):
    """Return the full names of all modules that a file imports, with whether it is at the top."""
    tree = ast.parse(path.read_text())
    top = set(map(id, tree.body))
    guarded = {id(n) for node in tree.body if isinstance(node, ast.Try) for n in node.body}
    for node in ast.walk(tree):
        at_top = id(node) in top or id(node) in guarded
        if isinstance(node, ast.Import):
            yield from ((alias.name, at_top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module
            if module == "saltvirt":
                yield from ((f"saltvirt.{alias.name}", at_top) for alias in node.names)
            else:
                yield module, at_top


def part(path):
    """Return which part of the library a file belongs to."""
    return path.relative_to(LIBRARY).parts[0].removesuffix(".py")


def where(path):
    """Name a file in a test's id."""
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PARTS, ids=where)
def test_arrows_point_one_way(path):
    allowed = MAY.get(part(path), BASE | {"xml"})
    used = {name.split(".")[1] for name, _top in imports(path) if name.startswith("saltvirt.")}

    assert used <= allowed


@pytest.mark.parametrize("path", [*SALT_MODULES, *PARTS], ids=where)
def test_imports_are_at_the_top_of_the_file(path):
    assert [name for name, at_top in imports(path) if not at_top] == []


@pytest.mark.parametrize("path", PARTS, ids=where)
def test_dunders_stay_in_the_salt_modules(path):
    names = {n.id for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Name)}

    assert names & DUNDERS == set()


@pytest.mark.parametrize("path", PARTS, ids=where)
def test_edges_are_where_they_belong(path):
    used = {name for name, _top in imports(path)}
    top = {name.split(".")[0] for name in used}

    assert "libvirt" not in top or part(path) == "kvm"
    assert "salt.client" not in used or part(path) == "fleet"
    assert "subprocess" not in top or part(path) in ("image", "seed", "net")
    assert "salt" not in top or part(path) in SALT_ALLOWED


def names_imported(path):
    """Yield the names of all modules, functions and classes that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def calls(path):
    """Yield ``(what, function, line)`` of calls like ``what.function()``; what may be ""."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            what = node.func.value
            yield what.id if isinstance(what, ast.Name) else "", node.func.attr, node.lineno


NOT_XML = [path for path in PARTS if part(path) != "xml" and where(path) not in OTHER_XML]


@pytest.mark.parametrize("path", NOT_XML, ids=where)
def test_elements_of_a_domain_are_read_and_built_in_xml_alone(path):
    # ``re.findall`` and the like are functions of a module.
    modules = set(names_imported(path))
    found = [one for one in calls(path) if one[1] in OF_ELEMENTS and one[0] not in modules]

    assert found == []
    assert [one for one in calls(path) if one[0] == "ET"] == []


@pytest.mark.parametrize("path", sorted((ROOT / "_runners").glob("*.py")), ids=where)
def test_a_master_needs_no_libvirt(path):
    used = {name.split(".")[1] for name, _top in imports(path) if name.startswith("saltvirt.")}

    assert used.isdisjoint({"kvm", "image", "seed", "ops"})


@pytest.mark.parametrize("kind", ["_grains", "_output"])
def test_what_stays_loaded_for_ever_does_not_pin_the_library(kind):
    for path in (ROOT / kind).glob("*.py"):
        assert not [name for name, _top in imports(path) if name.startswith("saltvirt")]


@pytest.mark.parametrize("path", [*SALT_MODULES, *PARTS], ids=where)
def test_nothing_but_the_declared_dependencies_is_imported(path):
    known = {"saltvirt", "salt", "cryptography", "yaml", "libvirt", "pycdlib", "pyroute2"} | {
        "guestfs"  # in the worker, which the system's own Python runs
    }
    if path.parent.name == "worker":  # a program of its own, whose files import each other
        known |= {one.stem for one in path.parent.glob("*.py")}
    used = {name.split(".")[0] for name, _top in imports(path)}

    assert used - known <= set(sys.stdlib_module_names)
